#include <cstdlib>
#include <string>

#include "conformance/fabric_worlds.h"

// Two sides in one process over libfabric's providers for RDMA devices, one device each: soft-RoCE in a guest.
namespace fairway::conformance {
namespace {

Kind kind(const char* name, const std::string& provider, const std::string& ending) {
  FabricSetting setting{provider, {}, {"rxe0" + ending, "rxe1" + ending}, "0.0.0.0"};
  return {name, 1, [=](std::uint64_t) { return make_fabric_world(setting); }, [] {
            return shim_calls({}) == nullptr ? std::string("no libfabric") : std::string();
          }};
}

}  // namespace

std::vector<Kind> all_kinds() {
  // ofi_rxm asks for a queue of 128 entries for each of so many peers, 1024 unless it is told, and soft-RoCE has 32767.
  ::setenv("FI_UNIVERSE_SIZE", "64", 0);
  return {kind("fabric_rxm", "verbs;ofi_rxm", ""), kind("fabric_rxd", "verbs;ofi_rxd", "-dgram")};
}

}  // namespace fairway::conformance

#include "conformance/fabric_worlds.h"

#include <memory>
#include <string>
#include <vector>

#include "conformance/own_side.h"
#include "sys/system_runtime.h"
#include "transport/fabric/fabric.h"

// Two sides in one process over libfabric's providers that need no NIC. Not over shm: within one process it follows
// pointers into an end that was closed (docs/GOTCHAS.md); tests/process/engine has it between two.
#ifdef FAIRWAY_SANITIZED
// libfabric 1.17 loses its copy of an fi_info now and then, when an endpoint is closed while its peer connects.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libfabric.so";
}
#endif

namespace fairway::conformance {
namespace {

class FabricWorld final : public World {
 public:
  explicit FabricWorld(const FabricSetting& setting) : setting_(setting), runtime_(system_.runtime()) {
    transport::FabricOptions options;
    options.providers = {setting.provider};
    options.listen_host = setting.listen_host;
    options.calls = shim_calls(setting.shim);
    const auto maker = [&options](const std::string& domain) {
      options.domains.assign(domain.empty() ? 0 : 1, domain);
      return [options](transport::RegionTable& regions, Runtime& runtime) {
        return transport::open_fabric_transport(regions, runtime, options);
      };
    };
    a_ = std::make_unique<OwnSide>(runtime_, maker(setting.domains[0]));
    b_ = std::make_unique<OwnSide>(runtime_, maker(setting.domains[1]));
    a_->start();
    b_->start();
  }
  ~FabricWorld() override {
    b_->carry_no_more();  // request is said to the other side too
    a_.reset();
    b_.reset();
  }
  bool announces() const override {  // these have no descriptor to wait on
    return setting_.provider != "udp" && setting_.provider != "verbs;ofi_rxd";
  }
  std::size_t links() const override { return setting_.shim.copies; }
  bool break_link(std::uint64_t name) override { return shim_break(name) && wake(); }

 private:
  bool wake() {
    a().rest(0);
    a().cancel(~transport::SliceToken{0});  // a command: it polls
    return true;
  }
  const FabricSetting setting_;
  sys::SystemRuntime system_;
  Runtime runtime_;
};

}  // namespace

std::unique_ptr<World> make_fabric_world(const FabricSetting& setting) {
  if (shim_calls({}) == nullptr) return nullptr;
  return std::make_unique<FabricWorld>(setting);
}

Kind fabric_kind(const char* name, const FabricSetting& setting) {
  const auto why_not = [] { return std::string(shim_calls({}) == nullptr ? "no libfabric" : ""); };
  return {name, 1, [=](std::uint64_t) { return make_fabric_world(setting); }, why_not};
}

std::vector<Kind> fabric_kinds() {
  std::vector<Kind> kinds{fabric_kind("fabric_tcp_as_efa", {"tcp", {7, 1, 0}})};  // the hardest of them
#ifndef FAIRWAY_SANITIZED
  kinds.push_back(fabric_kind("fabric_tcp", {"tcp"}));
  kinds.push_back(
      fabric_kind("fabric_bound", {"tcp", {0, 1, FI_MR_ENDPOINT | FI_MR_LOCAL}}));  // memory of endpoints, as with cxi
  kinds.push_back(fabric_kind("fabric_udp", {"udp"}));
#endif
  return kinds;
}

}  // namespace fairway::conformance

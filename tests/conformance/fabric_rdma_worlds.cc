#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "conformance/fabric_worlds.h"

// Two sides in one process over libfabric's providers for RDMA devices, one device each: soft-RoCE in a guest.
namespace fairway::conformance {
namespace {

// What takes long in an emulated machine, or is decided before libfabric is asked.
constexpr std::array<std::string_view, 8> kLong{"AnyByteOfTheHandshakeChangedNeverHarmsAndNeverHangs",
                                                "TheLargestSliceMovesWhole",
                                                "BeyondTheEndIsOutOfRangeAndTouchesNothing",
                                                "BlocksOutsideAreRefusedWhereverTheyPoint",
                                                "WithoutThePermissionAccessIsDenied",
                                                "ARevokedRegionIsRefused",
                                                "HandlesThatMeanNothingAreRefused",
                                                "MoreThanTheDeviceSaysIsRefused"};

std::string left_out(const std::string& claim) {
  const char* all = std::getenv("FAIRWAY_LONG");
  if ((all != nullptr && *all != '\0') || std::find(kLong.begin(), kLong.end(), claim) == kLong.end()) return {};
  return "all claims over libfabric's RDMA providers take more than a minute: FAIRWAY_LONG=1 runs them";
}

Kind kind(const char* name, const std::string& provider, const std::string& ending) {
  Kind made = fabric_kind(name, {provider, {}, {"rxe0" + ending, "rxe1" + ending}, "0.0.0.0"});
  made.left_out = left_out;
  return made;
}

}  // namespace

std::vector<Kind> all_kinds() {
  // ofi_rxm asks for a queue of 128 entries for each of so many peers, 1024 unless it is told, and soft-RoCE has 32767.
  ::setenv("FI_UNIVERSE_SIZE", "64", 0);
  return {kind("fabric_rxm", "verbs;ofi_rxm", ""), kind("fabric_rxd", "verbs;ofi_rxd", "-dgram")};
}

}  // namespace fairway::conformance

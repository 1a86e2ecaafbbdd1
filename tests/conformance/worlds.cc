#include "conformance/world.h"

namespace fairway::conformance {

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const auto& some :
       {loopback_kinds(), mailbox_kinds(), shm_kinds(), cuda_kinds(), nic_kinds(), fabric_kinds(), tcp_kinds()})
    kinds.insert(kinds.end(), some.begin(), some.end());
  return kinds;
}

}  // namespace fairway::conformance

#pragma once

#include <cstdint>
#include <memory>

#include "transport/fabric/calls.h"

// What stands between the fabric transport and libfabric in tests. It breaks ends, and does to completions what EFA
// may: they come late and in any order, and the queue takes nothing for a while.
namespace fairway::conformance {

struct ShimSetting {
  std::uint64_t seed = 0;  // 0: everything comes as libfabric has it
  unsigned copies = 1;     // each domain so many times, under names of its own
  int extra_mr_mode = 0;   // that the domains are said to have besides
};

// For every world that is alive; `setting` is one at a time.
std::shared_ptr<const transport::fabric::Calls> shim_calls(const ShimSetting& setting);
// The initiator's end of the link of that name: nothing of it is heard any more.
bool shim_break(std::uint64_t link_name);
std::uint64_t shim_swaps();   // completions told in another order than they came
std::uint64_t shim_storms();  // operations that were refused though there was room

}  // namespace fairway::conformance

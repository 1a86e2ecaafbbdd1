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
  // Completions that are held back are not announced by the queue's descriptor, as with a provider that has to be
  // driven.
  bool unannounced = false;
  bool unordered = false;            // the provider does not say that it keeps any order
  bool keeps_ends = false;           // closing an end says that it is busy
  bool watches_regions = false;      // for shim_keep_regions()
  std::size_t most_completions = 0;  // that a queue may be opened for; 0: any number
  std::size_t takes_bytes = 0;       // so many of one region, and no more, by all domains but the first; 0: any number
};

// For every world that is alive; `setting` is one at a time.
std::shared_ptr<const transport::fabric::Calls> shim_calls(const ShimSetting& setting);
// The initiator's end of the link of that name: nothing of it is heard any more.
bool shim_break(std::uint64_t link_name);
// So many of the next frames that arrive anywhere are heard of by nobody, though their senders hear that they arrived;
// of frames of that length on, since the transport's own short words may come at any time.
void shim_lose(std::uint64_t arrivals, std::size_t least_bytes = 0);
std::uint64_t shim_losses();
// So many of the next frames, of that length on, are longer than they were sent.
void shim_lengthen(std::uint64_t arrivals, std::size_t least_bytes = 0);
void shim_forget(std::uint64_t completions);     // so many of the next operations' ends are told to nobody
std::uint64_t shim_forgets();                    // how many that still is for
std::uint64_t shim_swaps();                      // completions told in another order than they came
std::uint64_t shim_storms();                     // operations that were refused though there was room
std::uint64_t shim_sends();                      // frames that libfabric has taken
std::size_t shim_bound();                        // regions bound to ends that are not closed
void shim_keep_regions(std::uint64_t ends);      // so many of the next ends of regions say that it is busy
void shim_hold_sends(std::uint64_t end_parity);  // frames of such ends find no room: 1 the initiator's, 0; 2 none
void shim_receives(std::uint64_t taken);         // so many of the next receives are taken, and then none
void shim_only_errors(bool on);                  // queues say that there is an error, which nobody then tells
// As ShimSetting says, from now on: what the domains of all worlds take.
void shim_takes(std::size_t bytes, bool first = false);  // first: the first domain, and not the others

}  // namespace fairway::conformance

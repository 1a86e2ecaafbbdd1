#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/export.h"

namespace fairway {

// A link: whether the transfer uses it, and if not, why.
struct ExplainedLink {
  std::string name;  // "tcp/eth0/1"
  bool taken = false;
  std::string reason;  // why it is not used, or what is emulated on it ("read by messages")
  double share = 0;    // of the transfer's bytes, 0 to 1
  // Expected rate in bytes per second, by the machine's model (docs/prediction.md). 0: that bound is unknown.
  double expected_low = 0;
  double expected_high = 0;
  std::string bound;  // what limits it ("NVLink of GPU0 (out)"), or why there is no figure
};

// Which links a transfer uses or used, why not the others, its expected rate and its achieved rate.
struct Explanation {
  std::string operation;  // "write 1048576 bytes in 16 extents"
  std::string peer;
  std::string state;  // "planned", "in flight", "ok", "peer_dead: ..."
  std::vector<ExplainedLink> links;
  // Of a transfer: how many of its bytes have been moved and confirmed so far. Only the Completion says that it is
  // complete. For a receive whose link broke the count may start again.
  std::uint64_t bytes_done = 0;
  double seconds = 0;                // since submission, or until completion
  double reached = 0;                // bytes per second; 0: unknown
  std::uint64_t retried_slices = 0;  // moved to another link
  std::vector<std::string> notes;    // copies made, emulations, waits

  // Several lines for a person.
  [[nodiscard]] FAIRWAY_API std::string text() const;
};

}  // namespace fairway

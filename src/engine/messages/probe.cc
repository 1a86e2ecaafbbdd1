#include "engine/messages/probe.h"

#include <string>

namespace fairway::engine {

Status MessageProbe::look(PeerId peer, std::uint64_t tag, std::optional<Probed>& found) const {
  if (peer) return workers_.with_peer(peer, [&](Worker&, Peer& of) { found = of.first_message(tag); });
  for (const auto& worker : workers_.all()) {
    worker->call([&](Worker& owner) { found = owner.first_message(tag); });
    if (found) break;
  }
  return {};
}

Result<Probed> MessageProbe::probe(PeerId peer, std::uint64_t tag, Timeout timeout) {
  const Asleep watching(probes_);
  std::optional<Probed> found;
  Status status;
  (void)waiting_.wait_until(waiting_.deadline(timeout), [&] {
    if (waiting_.closed())
      status = {ErrorCode::closed, "the engine is closed"};
    else
      status = look(peer, tag, found);
    return found || !status;
  });
  if (found) return *found;
  if (!status) return status;
  return Status(ErrorCode::timed_out, "no message of tag " + std::to_string(tag) + " waits for a receive");
}

}  // namespace fairway::engine

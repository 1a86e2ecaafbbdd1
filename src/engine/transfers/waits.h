#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/transfers/transfer.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Calls that wait for several transfers: those that are named, or all that were accepted before. Any thread.
class TransferWaits {
 public:
  // Everything given outlives it.
  TransferWaits(TransferTable& transfers, const PeerTable& peers, const Workers& workers, Waiting& waiting)
      : transfers_(transfers), peers_(peers), workers_(workers), waiting_(waiting) {}

  // As the calls of Engine with these names.
  Result<Completion> wait_any(std::span<const TransferId> ids, Timeout timeout);
  Status wait_all(std::span<const TransferId> ids, std::span<Completion> completions, Timeout timeout);
  Status flush(PeerId peer, Timeout timeout);
  Status drain(Timeout timeout) { return settle(std::nullopt, timeout); }

 private:
  Status settle(std::optional<std::uint32_t> peer, Timeout timeout);
  [[nodiscard]] std::vector<TransferId> in_flight(std::optional<std::uint32_t> peer) const;
  Status late(const char* what);

  TransferTable& transfers_;
  const PeerTable& peers_;
  const Workers& workers_;
  Waiting& waiting_;
};

}  // namespace fairway::engine

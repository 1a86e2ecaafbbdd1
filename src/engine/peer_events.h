#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairway/engine.h"

#include "engine/peer_table.h"

namespace fairway::engine {

// The queue of peer events; bounded, for cold paths. If nobody polls, the oldest are dropped and counted. `up` of a
// peer that came back is held until the `down` of its last session was reported, since control's thread reports the one
// and a worker the other.
class PeerEvents {
 public:
  explicit PeerEvents(const PeerTable& peers) : peers_(peers) {}
  void push(PeerEvent event);
  std::size_t pop(std::span<PeerEvent> events);
  [[nodiscard]] bool empty() const { return waiting_.load(std::memory_order_seq_cst) == 0; }

 private:
  static constexpr std::size_t kCapacity = 1024;
  [[nodiscard]] bool waits(const PeerEvent& event) const;
  void tell(PeerEvent event);

  const PeerTable& peers_;
  std::mutex mutex_;            // guards the next four
  std::deque<PeerEvent> held_;  // an `up` that waits, and what is said of the same peer
  std::deque<PeerEvent> events_;
  std::vector<std::pair<PeerId, std::string>> up_;  // told to be up, and not yet to be down
  std::uint64_t dropped_ = 0;
  std::atomic<std::size_t> waiting_{0};  // events_.size(), for those who only want to know whether
};

}  // namespace fairway::engine

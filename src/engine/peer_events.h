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

// Bounded, for cold paths: what happened to peers. The oldest go when nobody polls, and are counted. Who comes back is
// told to be up after its last session was told to be down: control's thread says the one, and a worker the other.
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

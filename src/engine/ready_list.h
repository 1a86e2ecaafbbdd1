#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fairway::engine {

// The peers that have something to post, in the order in which they came to have it. Owner: the worker.
class ReadyList {
 public:
  explicit ReadyList(std::uint32_t peers) : listed_(peers, 0) {}

  void add(std::uint32_t peer) {
    if (listed_[peer] != 0) return;
    listed_[peer] = 1;
    order_.push_back(peer);
  }
  [[nodiscard]] std::size_t size() const { return order_.size(); }

  [[nodiscard]] std::uint32_t operator[](std::size_t place) const { return order_[place]; }

  // Takes out those for whom done(peer) holds.
  template <class Done>
  void remove_if(const Done& done) {
    std::size_t kept = 0;
    for (const std::uint32_t peer : order_) {
      if (done(peer))
        listed_[peer] = 0;
      else
        order_[kept++] = peer;
    }
    order_.resize(kept);
  }
  void remove(std::uint32_t peer) {
    if (listed_[peer] == 0) return;
    listed_[peer] = 0;
    std::erase(order_, peer);
  }

 private:
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> listed_;  // by peer: 1 or 0
};

}  // namespace fairway::engine

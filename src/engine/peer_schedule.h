#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.h"

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

// One timer for each peer, the earliest first: a binary heap that knows each peer's place, so that setting a timer
// again moves it. Every call costs log(timers that are set). Owner: the worker.
class TimerHeap {
 public:
  explicit TimerHeap(std::uint32_t peers) : places_(peers, kNowhere) {}

  [[nodiscard]] Time next() const { return heap_.empty() ? kNever : heap_.front().at; }

  // At that time, or earlier if it is set to that.
  void at_latest(std::uint32_t peer, Time time) {
    if (time == kNever) return;
    std::uint32_t place = places_[peer];
    if (place == kNowhere) {
      place = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({time, peer});
      places_[peer] = place;
    } else if (heap_[place].at <= time) {
      return;
    }
    heap_[place].at = time;
    rise(place);
  }
  // Whose time has come by `now`, no more set; false: nobody's.
  bool pop(Time now, std::uint32_t& peer) {
    if (next() > now || heap_.empty()) return false;
    peer = heap_.front().peer;
    clear(peer);
    return true;
  }
  void clear(std::uint32_t peer) {
    const std::uint32_t place = std::exchange(places_[peer], kNowhere);
    if (place == kNowhere) return;
    const Timer last = heap_.back();
    heap_.pop_back();
    if (place == heap_.size()) return;
    put(place, last);
    rise(place);
    sink(places_[last.peer]);
  }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  struct Timer {
    Time at = 0;
    std::uint32_t peer = 0;
  };
  void put(std::uint32_t place, Timer timer) {
    heap_[place] = timer;
    places_[timer.peer] = place;
  }
  void rise(std::uint32_t place) {
    const Timer timer = heap_[place];
    for (; place > 0 && timer.at < heap_[(place - 1) / 2].at; place = (place - 1) / 2)
      put(place, heap_[(place - 1) / 2]);
    put(place, timer);
  }
  void sink(std::uint32_t place) {
    const Timer timer = heap_[place];
    for (std::uint32_t child = 2 * place + 1; child < heap_.size(); child = 2 * place + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].at < heap_[child].at) ++child;
      if (timer.at <= heap_[child].at) break;
      put(place, heap_[child]);
      place = child;
    }
    put(place, timer);
  }

  std::vector<Timer> heap_;
  std::vector<std::uint32_t> places_;  // by peer: its place in the heap
};

}  // namespace fairway::engine

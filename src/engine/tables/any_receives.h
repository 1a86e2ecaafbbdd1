#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/tables/transfer.h"

namespace fairway::engine {

// A receive of any peer goes to every worker, through the queue of submissions, so that each has it at its place among
// the receives of its own peers. Whichever takes it first has it. Of one that nobody has taken, the worker that owns no
// peer's slot, kNoSlot, is in charge: its home.

// Which are there, for all workers. Any thread.
class AnyReceives {
 public:
  static constexpr std::uint32_t kMost = 1024;  // that no message has come for
  static constexpr std::uint32_t kMark = 1u
                                         << 31;  // in the queue of submissions: an index here, and no transfer's slot
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  struct One {
    TransferId id;
    std::uint64_t tag = 0;
    Slice into;
    Time submitted = 0;
    Time deadline = kNever;
    std::uint32_t taker = kNobody;  // worker
  };

  explicit AnyReceives(std::uint32_t workers) : workers_(workers) {}

  std::uint32_t add(const One& one);                     // kNoSlot: there are kMost
  bool take(std::uint32_t index, std::uint32_t worker);  // true for the one that has it
  [[nodiscard]] One find(std::uint32_t index) const;
  void drop(std::uint32_t index);  // by each worker once: it does not look there any more

 private:
  struct Entry {
    One one;
    std::uint32_t users = 0;  // workers that have not dropped it
  };
  const std::uint32_t workers_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

// Those that a worker has got and that may still wait, in its order. Owner: the worker.
class AnyWaiting {
 public:
  AnyWaiting(AnyReceives& all, std::uint32_t worker) : all_(all), worker_(worker) {}

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  [[nodiscard]] std::uint64_t got() const { return got_; }  // so far: the place of a peer's receive that comes now
  void push(std::uint32_t index) {
    const AnyReceives::One one = all_.find(index);
    waiting_.push_back({index, one.id, one.tag, ++got_});
  }
  // The first of that tag among the first `before` that it got, for this worker: its slot. kNoSlot: there is none.
  std::uint32_t take(std::uint64_t tag, std::uint64_t before);
  // Takes each for which `ends(one)`, for this worker, and calls `end(slot)`.
  template <class Ends, class End>
  void take_if(const Ends& ends, const End& end) {
    for (std::size_t i = 0; i < waiting_.size();) {
      const AnyReceives::One one = all_.find(waiting_[i].index);
      if (one.taker != AnyReceives::kNobody || !ends(one) || !all_.take(waiting_[i].index, worker_)) {
        ++i;
        continue;
      }
      erase(i);
      end(one.id.slot);
    }
  }
  void clear() {
    while (!waiting_.empty()) erase(waiting_.size() - 1);
  }
  // Whether one of that tag, which may have been taken elsewhere, comes before a receive at that place.
  [[nodiscard]] bool precedes(std::uint64_t tag, std::uint64_t before) const;
  [[nodiscard]] std::optional<AnyReceives::One> look(TransferId id) const {
    const Waiting* const one = find(id);
    return one == nullptr ? std::nullopt : std::optional(all_.find(one->index));
  }
  [[nodiscard]] bool has(TransferId id) const { return find(id) != nullptr; }
  [[nodiscard]] std::uint32_t taker(TransferId id) const {  // kNobody also if it is not here
    const Waiting* const one = find(id);
    return one == nullptr ? AnyReceives::kNobody : all_.find(one->index).taker;
  }
  // Forgets those that others have taken; calls `gone(id)` for each.
  template <class Gone>
  void drop_taken(const Gone& gone) {
    for (std::size_t i = 0; i < waiting_.size();) {
      if (all_.find(waiting_[i].index).taker == AnyReceives::kNobody) {
        ++i;
        continue;
      }
      const TransferId id = waiting_[i].id;
      erase(i);
      gone(id);
    }
  }

 private:
  struct Waiting {
    std::uint32_t index = 0;
    TransferId id;
    std::uint64_t tag = 0;
    std::uint64_t place = 0;
  };
  [[nodiscard]] const Waiting* find(TransferId id) const;
  void erase(std::size_t at);

  AnyReceives& all_;
  const std::uint32_t worker_;
  std::vector<Waiting> waiting_;
  std::uint64_t got_ = 0;
};

}  // namespace fairway::engine

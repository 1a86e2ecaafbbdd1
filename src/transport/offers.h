#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace fairway::transport {

// Where the two ends of a link within one process find each other: what one end offers, by an unguessable number, for
// as long as somebody owns it. Any thread.
template <class T>
class Offers {
 public:
  void add(std::uint64_t number, const std::shared_ptr<T>& offered) {
    const std::lock_guard lock(mutex_);
    std::erase_if(offered_, [](const auto& each) { return each.second.expired(); });
    offered_[number] = offered;
  }
  std::shared_ptr<T> find(std::uint64_t number) {  // null: no such offer
    const std::lock_guard lock(mutex_);
    const auto found = offered_.find(number);
    return found == offered_.end() ? nullptr : found->second.lock();
  }
  template <class Matches>
  std::shared_ptr<T> find_if(Matches matches) {  // null: none does
    const std::lock_guard lock(mutex_);
    for (const auto& [number, each] : offered_)
      if (auto held = each.lock(); held != nullptr && matches(*held)) return held;
    return nullptr;
  }

 private:
  std::mutex mutex_;  // guards offered_
  std::unordered_map<std::uint64_t, std::weak_ptr<T>> offered_;
};

}  // namespace fairway::transport

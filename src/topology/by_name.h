#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "topology/machine.h"
#include "topology/text.h"

// Entries of a machine's list by name, for readers that meet a name on every line. It borrows the machine for one
// reading, in which entries are added and none is removed or renamed.
namespace fairway::topology {

template <class T>
class ByName {
 public:
  ByName(Machine& machine, std::vector<T>& list, LimitOf limit) : machine_(machine), list_(list), limit_(limit) {}

  // The entry of that name, which is new if there was none; null, and a note, where the list is full.
  T* find_or_add(std::string_view name) {
    auto quoted = text::quote(name);
    if (auto* known = find(quoted)) return known;
    if (list_.size() >= limit_.most) {
      if (!full_) leave_out(machine_, limit_);
      full_ = true;
      return nullptr;
    }
    list_.emplace_back().name = std::move(quoted);
    return &list_.back();
  }

 private:
  // A short text asks for few names, for which no index is worth making.
  static constexpr std::size_t kFew = 4;

  T* find(const std::string& name) {
    if (asked_ < kFew) {
      ++asked_;
      const auto found = std::find_if(list_.begin(), list_.end(), [&](const T& one) { return one.name == name; });
      return found == list_.end() ? nullptr : &*found;
    }
    for (; indexed_ < list_.size(); ++indexed_) places_.try_emplace(list_[indexed_].name, indexed_);
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &list_[found->second];
  }

  Machine& machine_;
  std::vector<T>& list_;
  LimitOf limit_;
  bool full_ = false;  // and a note says so
  std::size_t asked_ = 0;
  std::size_t indexed_ = 0;  // how many entries of the list are in `places_`
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace fairway::topology

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace fairway::render {

inline constexpr std::uint32_t kNoGpu = 0xffffffff;

// Items that lead to GPUs change places among themselves, so that GPUs stand in the order of their numbers; the others
// stay where they are. `first` says the least number below an item, or kNoGpu.
template <class Item, class First>
void in_gpu_order(std::vector<Item>& items, First first) {
  std::vector<std::size_t> places;
  std::vector<Item> leading;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (first(items[i]) == kNoGpu) continue;
    places.push_back(i);
    leading.push_back(std::move(items[i]));
  }
  std::stable_sort(leading.begin(), leading.end(), [&](const Item& a, const Item& b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < places.size(); ++i) items[places[i]] = std::move(leading[i]);
}

}  // namespace fairway::render

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace fairway::render {

inline constexpr std::uint32_t kNoGpu = 0xffffffff;

// Orders the items that lead to GPUs by GPU number; the others keep their places. `first` gives the smallest GPU number
// below an item, or kNoGpu.
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

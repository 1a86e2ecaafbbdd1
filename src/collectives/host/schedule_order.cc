#include "collectives/host/schedule_order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace fairway::collectives {
namespace {

// The buffer whose blocks are one for each rank and move by themselves; scratch: none is.
Buffer blocks_of(const Shape& shape) {
  if (shape.algorithm != Algorithm::ring) return Buffer::scratch;
  if (shape.kind == CollectiveKind::all_gather) return Buffer::output;
  return shape.kind == CollectiveKind::reduce_scatter ? Buffer::input : Buffer::scratch;
}

bool takes_any_place(const Shape& shape) {
  switch (shape.kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::broadcast: return true;
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce: return !shape.ordered && !shape.wide;
    default: return !shape.ordered && !shape.wide && blocks_of(shape) != Buffer::scratch;
  }
}

}  // namespace

std::vector<int> order_of(const std::vector<Words>& words) {
  std::vector<int> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  const auto first = [&](int rank, bool node) {
    const Words& own = words[static_cast<std::size_t>(rank)];
    return std::find_if(words.begin(), words.end(),
                        [&](const Words& one) { return one.host == own.host && (!node || one.node == own.node); }) -
           words.begin();
  };
  std::vector<std::tuple<std::ptrdiff_t, std::ptrdiff_t, int>> places;
  for (const int rank : order) places.emplace_back(first(rank, false), first(rank, true), rank);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < places.size(); ++i) order[i] = std::get<2>(places[i]);
  if (std::is_sorted(order.begin(), order.end())) order.clear();
  return order;
}

std::vector<int> groups_of(const std::vector<Words>& words) {
  for (const bool nodes : {false, true}) {
    std::vector<int> groups;
    std::vector<const Words*> firsts;
    for (const Words& one : words) {
      if (nodes && one.node < 0) return {};
      const auto known = std::find_if(firsts.begin(), firsts.end(), [&](const Words* first) {
        return first->host == one.host && (!nodes || first->node == one.node);
      });
      groups.push_back(static_cast<int>(known - firsts.begin()));
      if (known == firsts.end()) firsts.push_back(&one);
    }
    if (firsts.size() == words.size()) return {};
    if (firsts.size() > 1) return groups;
  }
  return {};
}

void make_schedule_along(std::span<const int> order, const Shape& shape, Schedule& out) {
  if (order.empty() || !takes_any_place(shape)) return make_schedule(shape, out);
  const auto place = [&](int rank) {
    return static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
  };
  Shape placed = shape;
  placed.rank = place(shape.rank);
  placed.root = place(shape.root);
  make_schedule(placed, out);
  const Buffer blocks = blocks_of(shape);
  const std::uint64_t block = shape.count * shape.element_bytes;
  const auto move = [&](Place& at) {
    if (blocks == Buffer::scratch || at.buffer != blocks || block == 0 || at.at >= block * order.size()) return;
    at.at = static_cast<std::uint64_t>(order[at.at / block]) * block + at.at % block;
  };
  for (Step& step : out.steps) {
    if (step.peer >= 0) step.peer = order[static_cast<std::size_t>(step.peer)];
    move(step.from);
    move(step.into);
  }
}

}  // namespace fairway::collectives

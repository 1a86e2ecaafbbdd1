#include "engine/tables/slices.h"

#include <utility>

namespace fairway::engine {

void Outbox::flush(std::uint16_t transport) {
  Row& row = rows_[transport];
  std::size_t first = 0;
  while (first < row.count) {
    const std::span<const transport::Slice> rest(row.slices.data() + first, row.count - first);
    first += transports_[transport]->post(rest);
    if (first == row.count) break;
    owner_.on_untaken(row.slices[first++].token);  // those behind it may still be accepted
  }
  waiting_ -= std::exchange(row.count, 0);
}

}  // namespace fairway::engine

#pragma once

#include "collectives/gpu/device/channel.h"
#include "collectives/gpu/device/elements.h"

// Rows of lines, between the caller's memory and a rank's scratch memory. Of H, the hardware:
//   kLanesHere: how many of a row's lanes one caller plays: 1 on a GPU, all on a CPU
//   row_lane(i): which is the i-th of them; all_of_row(bool): whether it is true on all lanes of the row
//   store_row(at, words), load_row(at, words): a line is whole, or its flag is the one before
//   let_next_begin(): the stream's next kernel may be started, though it waits for the end of this one
// A short operation takes mostly the time in which a GPU fetches its code. So there is little of it: several whole rows
// at once in one loop, and in another one row of which any bytes may be there.
namespace fairway::collectives::gpu {

template <class H>
struct Row {
  std::uint64_t words[H::kLanesHere][2];
};
template <class H, unsigned kRows>
using Rows = Row<H>[kRows];

FAIRWAY_IN_KERNELS bool has_flag(unsigned lane) {
  return lane % 8 == 7;
}
// Where in a row's bytes those of a lane lie: first 16 for each lane without a flag, then 8 for each with one.
FAIRWAY_IN_KERNELS unsigned bytes_at(unsigned lane) {
  return has_flag(lane) ? kRowBytes - kRowLanes + lane / 8 * 8 : (lane - lane / 8) * 16;
}

// Rows of which all bytes are there, at a multiple of 16.
template <class H, unsigned kRows>
FAIRWAY_IN_KERNELS void read_rows(const unsigned char* from, Rows<H, kRows>& rows) {
  FAIRWAY_UNROLL
  for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    const unsigned char* const at = from + k * kRowBytes + bytes_at(lane);
    if (has_flag(lane)) {
      rows[k].words[i][0] = *reinterpret_cast<const std::uint64_t*>(at);
    } else {
      const auto whole = *reinterpret_cast<const Whole<16>*>(at);
      rows[k].words[i][0] = whole.words[0];
      rows[k].words[i][1] = whole.words[1];
    }
  }
}
template <class H, unsigned kRows>
FAIRWAY_IN_KERNELS void write_rows(unsigned char* to, const Rows<H, kRows>& rows) {
  FAIRWAY_UNROLL
  for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    unsigned char* const at = to + k * kRowBytes + bytes_at(lane);
    if (has_flag(lane))
      *reinterpret_cast<std::uint64_t*>(at) = rows[k].words[i][0];
    else
      *reinterpret_cast<Whole<16>*>(at) = {{rows[k].words[i][0], rows[k].words[i][1]}};
  }
}
// `left`: bytes of the caller's memory that there are from there on, maybe 0.
template <class H>
FAIRWAY_IN_KERNELS void read_row(const unsigned char* from, std::uint64_t left, Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = bytes_at(lane), width = has_flag(lane) ? 8 : 16;
    row.words[i][0] = row.words[i][1] = 0;
    if (at >= left) continue;
    if (width == 16 && is_wide<16>(from + at, left - at)) {
      const auto whole = *reinterpret_cast<const Whole<16>*>(from + at);
      row.words[i][0] = whole.words[0];
      row.words[i][1] = whole.words[1];
    } else {
      const Odd part = load_part(from + at, static_cast<unsigned>(at_most(left - at, width)));
      row.words[i][0] = part.words[0];
      row.words[i][1] = part.words[1];
    }
  }
}
template <class H>
FAIRWAY_IN_KERNELS void write_row(unsigned char* to, std::uint64_t left, const Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = bytes_at(lane), width = has_flag(lane) ? 8 : 16;
    if (at >= left) continue;
    if (width == 16 && is_wide<16>(to + at, left - at))
      *reinterpret_cast<Whole<16>*>(to + at) = {{row.words[i][0], row.words[i][1]}};
    else
      store_part(to + at, static_cast<unsigned>(at_most(left - at, width)), {{row.words[i][0], row.words[i][1]}});
  }
}

// This warp's rows of a round: [begin, end) of a block, at least one row, be it empty.
struct Span {
  std::uint64_t begin, end;
  std::uint32_t rows;

  // So many of the first are whole.
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint32_t whole() const {
    return static_cast<std::uint32_t>(end - begin) / kRowBytes;
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint64_t at(std::uint32_t row) const {
    return begin + std::uint64_t{row} * kRowBytes;
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint64_t left(std::uint32_t row) const { return end - at_most(at(row), end); }
};

// What every warp does with its rows, whoever it exchanges them with.
template <class H>
class RowWarp {
 public:
  FAIRWAY_IN_KERNELS RowWarp(Channel<H>& channel, unsigned warp)
      : channel_(channel),
        call_(channel.call()),
        lines_(channel.lines()),
        nth_(channel.block() * lines_.warps + warp) {}

 protected:
  FAIRWAY_IN_KERNELS Span span(std::uint32_t nth, std::uint64_t block_bytes) const {
    const std::uint64_t first =
        (static_cast<std::uint64_t>(nth) * lines_.blocks * lines_.warps + nth_) * lines_.rows * kRowBytes;
    const std::uint64_t begin = at_most(first, block_bytes);
    const std::uint64_t end = at_most(first + std::uint64_t{lines_.rows} * kRowBytes, block_bytes);
    const auto rows = static_cast<std::uint32_t>(end - begin + kRowBytes - 1) / kRowBytes;
    return {begin, end, rows == 0 ? 1 : rows};
  }
  // many(first) for each kRows of the first `whole` rows, one(row) for each of the rest of `rows`. `places`: the
  // addresses of all memory they access, in one word. False: one of them has failed.
  template <unsigned kRows, class Many, class One>
  static FAIRWAY_IN_KERNELS bool each_row(std::uint32_t rows, std::uint32_t whole, std::uintptr_t places, Many many,
                                          One one) {
    std::uint32_t row = 0;
    if (places % 16 == 0) {
      FAIRWAY_NOT_UNROLLED
      for (; row + kRows <= whole; row += kRows)
        if (!many(row)) return false;
    }
    FAIRWAY_NOT_UNROLLED
    for (; row < rows; ++row)
      if (!one(row)) return false;
    return true;
  }

  FAIRWAY_IN_KERNELS std::uint32_t index(std::uint32_t row) const { return nth_ * lines_.rows + row; }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void store(unsigned to, LineRound round, std::uint32_t first, const Rows<H, kRows>& rows) const {
    const std::uint64_t flag = line_flag_of(round, call_.digest);
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k) {
      Row<H> row = rows[k];
      FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i)
        if (has_flag(H::row_lane(i))) row.words[i][1] = flag;
      H::store_row(channel_.row(to, call_.rank, round, index(first + k)), row.words);
    }
  }
  // Rows from that rank, whether they have come or not.
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void look(unsigned from, LineRound round, std::uint32_t first, Rows<H, kRows>& out) const {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k)
      H::load_row(channel_.row(call_.rank, from, round, index(first + k)), out[k].words);
  }
  // What this lane has seen of it.
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS bool has_come(std::uint64_t flag, const Rows<H, kRows>& rows) const {
    bool all = true;
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
    for (unsigned i = 0; i < H::kLanesHere; ++i)
      if (has_flag(H::row_lane(i))) all = all && rows[k].words[i][1] == flag;
    return all;
  }
  // Waits for them. False: it has failed.
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS bool load(unsigned from, LineRound round, std::uint32_t first, Rows<H, kRows>& out) const {
    const std::uint64_t flag = line_flag_of(round, call_.digest);
    for (;;) {
      look<kRows>(from, round, first, out);
      if (H::all_of_row(has_come<kRows>(flag, out))) return true;
      if (!H::all_of_row(!channel_.gives_up(from, Waits::lines))) return false;
    }
  }

  Channel<H>& channel_;
  const Call& call_;
  const Lines& lines_;
  const unsigned nth_;
};

// One address, for each_row().
FAIRWAY_IN_KERNELS std::uintptr_t place_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace fairway::collectives::gpu

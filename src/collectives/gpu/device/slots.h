#pragma once

#include "collectives/gpu/device/channel.h"
#include "collectives/gpu/device/elements.h"
#include "collectives/gpu/device/rows.h"

// Rows of the further kernels (reduce.cuh, all_to_allv.cuh, send_recv.cuh), in one of two forms: lines, or where lines
// may be torn units. They go by the rounds of lines in both. These kernels loop over the other ranks where those of
// ll128.cuh load from all at once: they are many, and their code is to be little.
namespace fairway::collectives::gpu {

struct LineForm {
  static constexpr unsigned kBytes = kRowBytes;  // of the caller's in a row
  static constexpr bool kSeveral = true;         // whole rows go several at once, by code of their own
  static FAIRWAY_IN_KERNELS unsigned at(unsigned lane) { return bytes_at(lane); }
  static FAIRWAY_IN_KERNELS unsigned width(unsigned lane) { return has_flag(lane) ? 8 : 16; }
  static FAIRWAY_IN_KERNELS void pack(unsigned lane, LineRound round, std::uint64_t digest, std::uint64_t (&words)[2]) {
    if (has_flag(lane)) words[1] = line_flag_of(round, digest);
  }
  static FAIRWAY_IN_KERNELS bool has_come(unsigned lane, LineRound round, std::uint64_t digest,
                                          const std::uint64_t (&words)[2]) {
    return !has_flag(lane) || words[1] == line_flag_of(round, digest);
  }
  static FAIRWAY_IN_KERNELS void unpack(std::uint64_t (&)[2]) {}
};

// 8 bytes in 16, each half of which is whole and has a flag of its own: see exchange.h.
struct UnitForm {
  static constexpr unsigned kBytes = kRowLanes * 8;
  static constexpr bool kSeveral = false;
  static FAIRWAY_IN_KERNELS unsigned at(unsigned lane) { return lane * 8; }
  static FAIRWAY_IN_KERNELS unsigned width(unsigned) { return 8; }
  static FAIRWAY_IN_KERNELS void pack(unsigned, LineRound round, std::uint64_t digest, std::uint64_t (&words)[2]) {
    const std::uint64_t data = words[0];
    words[0] = slot_flag_of(round, digest, false) << 32 | (data & 0xFFFFFFFF);
    words[1] = slot_flag_of(round, digest, true) << 32 | data >> 32;
  }
  static FAIRWAY_IN_KERNELS bool has_come(unsigned, LineRound round, std::uint64_t digest,
                                          const std::uint64_t (&words)[2]) {
    return words[0] >> 32 == slot_flag_of(round, digest, false) && words[1] >> 32 == slot_flag_of(round, digest, true);
  }
  static FAIRWAY_IN_KERNELS void unpack(std::uint64_t (&words)[2]) {
    words[0] = words[1] << 32 | (words[0] & 0xFFFFFFFF);
  }
};

// Rows of which all bytes are there, at a multiple of 16.
template <class F, class H, unsigned kRows>
FAIRWAY_IN_KERNELS void read_slots(const unsigned char* from, Rows<H, kRows>& rows) {
  FAIRWAY_UNROLL
  for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    const unsigned char* const at = from + k * F::kBytes + F::at(lane);
    if (F::width(lane) == 8) {
      rows[k].words[i][0] = *reinterpret_cast<const std::uint64_t*>(at);
    } else {
      const auto whole = *reinterpret_cast<const Whole<16>*>(at);
      rows[k].words[i][0] = whole.words[0];
      rows[k].words[i][1] = whole.words[1];
    }
  }
}
template <class F, class H, unsigned kRows>
FAIRWAY_IN_KERNELS void write_slots(unsigned char* to, const Rows<H, kRows>& rows) {
  FAIRWAY_UNROLL
  for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    unsigned char* const at = to + k * F::kBytes + F::at(lane);
    if (F::width(lane) == 8)
      *reinterpret_cast<std::uint64_t*>(at) = rows[k].words[i][0];
    else
      *reinterpret_cast<Whole<16>*>(at) = {{rows[k].words[i][0], rows[k].words[i][1]}};
  }
}
// `left`: bytes of the caller's memory that there are from there on, maybe 0.
template <class F, class H>
FAIRWAY_IN_KERNELS void read_slot(const unsigned char* from, std::uint64_t left, Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = F::at(lane), width = F::width(lane);
    row.words[i][0] = row.words[i][1] = 0;
    if (at >= left) continue;
    const Odd part = load_part(from + at, static_cast<unsigned>(at_most(left - at, width)));
    row.words[i][0] = part.words[0];
    row.words[i][1] = part.words[1];
  }
}
template <class F, class H>
FAIRWAY_IN_KERNELS void write_slot(unsigned char* to, std::uint64_t left, const Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = F::at(lane), width = F::width(lane);
    if (at >= left) continue;
    store_part(to + at, static_cast<unsigned>(at_most(left - at, width)), {{row.words[i][0], row.words[i][1]}});
  }
}

// A warp's rows of a round: [begin, end) of a block, at least one row, be it empty.
template <class F>
struct SlotSpan {
  std::uint64_t begin, end;

  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint32_t whole() const {
    return static_cast<std::uint32_t>(end - begin) / F::kBytes;
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint32_t rows() const {
    const auto all = (static_cast<std::uint32_t>(end - begin) + F::kBytes - 1) / F::kBytes;
    return all == 0 ? 1 : all;
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint64_t at(std::uint32_t row) const {
    return begin + std::uint64_t{row} * F::kBytes;
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint64_t left(std::uint32_t row) const { return end - at_most(at(row), end); }
};

// What every warp of these kernels does with its rows.
template <class H, class F>
class SlotWarp {
 public:
  FAIRWAY_IN_KERNELS SlotWarp(Channel<H>& channel, unsigned warp)
      : channel_(channel),
        call_(channel.call()),
        lines_(channel.lines()),
        nth_(channel.block() * lines_.warps + warp) {}

 protected:
  using Span = SlotSpan<F>;
  static constexpr unsigned kMoved = 4;  // rows whose loads are on their way together

  // Round `nth` of so many bytes.
  FAIRWAY_IN_KERNELS Span span(std::uint32_t nth, std::uint64_t bytes) const {
    const std::uint64_t each = std::uint64_t{lines_.rows} * F::kBytes;
    const std::uint64_t first = (static_cast<std::uint64_t>(nth) * lines_.blocks * lines_.warps + nth_) * each;
    return {at_most(first, bytes), at_most(first + each, bytes)};
  }
  // many(first) for each kRows of the whole rows, one(row) for each of the rest. `places`: the addresses of all memory
  // they access, in one word. False: one of them has failed.
  template <unsigned kRows, class Many, class One>
  static FAIRWAY_IN_KERNELS bool each_row(const Span& all, std::uintptr_t places, Many many, One one) {
    std::uint32_t row = 0;
    if constexpr (F::kSeveral)
      if (places % 16 == 0) {
        FAIRWAY_NOT_UNROLLED
        for (const std::uint32_t whole = all.whole(); row + kRows <= whole; row += kRows)
          if (!many(row)) return false;
      }
    FAIRWAY_NOT_UNROLLED
    for (const std::uint32_t rows = all.rows(); row < rows; ++row)
      if (!one(row)) return false;
    return true;
  }
  FAIRWAY_IN_KERNELS unsigned peer(unsigned k) const {
    const unsigned next = call_.rank + k;
    return next < call_.size ? next : next - call_.size;
  }
  // Where row `index` of what `from` sends lies at `owner`.
  FAIRWAY_IN_KERNELS unsigned char* place(unsigned owner, unsigned from, LineRound round, std::uint32_t row) const {
    return channel_.row(owner, from, round, nth_ * lines_.rows + row);
  }

  template <unsigned kRows, class At>
  FAIRWAY_IN_KERNELS void store_at(At at, LineRound round, const Rows<H, kRows>& rows) const {
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k) {
      Row<H> row = rows[k];
      FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i) F::pack(H::row_lane(i), round, call_.digest, row.words[i]);
      H::store_row(at(k), row.words);
    }
  }
  // Waits for rows of that rank. False: it has failed.
  template <unsigned kRows, class At>
  FAIRWAY_IN_KERNELS bool load_at(At at, unsigned from, LineRound round, Rows<H, kRows>& rows) const {
    for (;;) {
      bool come = true;
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) H::load_row(at(k), rows[k].words);
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i)
        come = F::has_come(H::row_lane(i), round, call_.digest, rows[k].words[i]) && come;
      if (H::all_of_row(come)) break;
      if (!H::all_of_row(!channel_.gives_up(from, Waits::lines))) return false;
    }
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
    for (unsigned i = 0; i < H::kLanesHere; ++i) F::unpack(rows[k].words[i]);
    return true;
  }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void store(unsigned to, LineRound round, std::uint32_t first, const Rows<H, kRows>& rows) const {
    store_at<kRows>([&](unsigned k) { return place(to, call_.rank, round, first + k); }, round, rows);
  }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS bool load(unsigned from, LineRound round, std::uint32_t first, Rows<H, kRows>& rows) const {
    return load_at<kRows>([&](unsigned k) { return place(call_.rank, from, round, first + k); }, from, round, rows);
  }
  // Of a rank that has nothing for the other one in this round: that it is there.
  FAIRWAY_IN_KERNELS void store_none(unsigned to, LineRound round) const {
    const Rows<H, 1> none = {};
    store<1>(to, round, 0, none);
  }
  FAIRWAY_IN_KERNELS bool load_none(unsigned from, LineRound round) const {
    Rows<H, 1> none;
    return load<1>(from, round, 0, none);
  }
  // Those rows of the block that begins there in the caller's memory: put(first, rows).
  template <class Put>
  FAIRWAY_IN_KERNELS void send_span(const Span& all, const unsigned char* block, Put put) const {
    (void)each_row<kMoved>(
        all, place_of(block),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          read_slots<F, H, kMoved>(block + all.at(first), rows);
          put(first, rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          read_slot<F>(block + all.at(row), all.left(row), rows[0]);
          put(row, rows);
          return true;
        });
  }
  // Those rows to there in the caller's memory: get(first, rows), false: it has failed.
  template <class Get>
  FAIRWAY_IN_KERNELS bool take_span(const Span& all, unsigned char* block, Get get) const {
    return each_row<kMoved>(
        all, place_of(block),
        [&](std::uint32_t first) {
          Rows<H, kMoved> rows;
          if (!get(first, rows)) return false;
          write_slots<F, H, kMoved>(block + all.at(first), rows);
          return true;
        },
        [&](std::uint32_t row) {
          Rows<H, 1> rows;
          if (!get(row, rows)) return false;
          write_slot<F>(block + all.at(row), all.left(row), rows[0]);
          return true;
        });
  }

  Channel<H>& channel_;
  const Call& call_;
  const Lines& lines_;
  const unsigned nth_;
};

}  // namespace fairway::collectives::gpu

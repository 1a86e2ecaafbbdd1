#pragma once

#include "collectives/gpu_bytes.h"
#include "collectives/gpu_channel.h"
#include "collectives/gpu_number.h"

// What a warp of a collective's kernel does by lines. Of H, the hardware:
//   kLanesHere: how many of a row's lanes one caller plays: 1 on a GPU, all on a CPU
//   row_lane(i): which is the i-th of them; all_of_row(bool): whether it is true on all lanes of the row
//   store_row(at, words), load_row(at, words): a line is whole, or its flag is the one before
//   let_next_begin(): the stream's next kernel may be started, though it waits for the end of this one
namespace fairway::collectives::gpu {

template <class H>
struct Row {
  std::uint64_t words[H::kLanesHere][2];
};

FAIRWAY_IN_KERNELS bool has_flag(unsigned lane) {
  return lane % 8 == 7;
}
// Where in a row's bytes those of a lane lie: first 16 for each lane without a flag, then 8 for each with one.
FAIRWAY_IN_KERNELS unsigned bytes_at(unsigned lane) {
  return has_flag(lane) ? kRowBytes - kRowLanes + lane / 8 * 8 : (lane - lane / 8) * 16;
}

// A row of which all bytes are there, at a multiple of 16.
template <class H>
FAIRWAY_IN_KERNELS void read_whole_row(const unsigned char* from, Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    const unsigned char* const at = from + bytes_at(lane);
    if (has_flag(lane)) {
      row.words[i][0] = *reinterpret_cast<const std::uint64_t*>(at);
    } else {
      const auto whole = *reinterpret_cast<const Whole<16>*>(at);
      row.words[i][0] = whole.words[0];
      row.words[i][1] = whole.words[1];
    }
  }
}
template <class H>
FAIRWAY_IN_KERNELS void write_whole_row(unsigned char* to, const Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i);
    unsigned char* const at = to + bytes_at(lane);
    if (has_flag(lane))
      *reinterpret_cast<std::uint64_t*>(at) = row.words[i][0];
    else
      *reinterpret_cast<Whole<16>*>(at) = {{row.words[i][0], row.words[i][1]}};
  }
}
// `left`: bytes of the caller's memory that there are from there on, maybe 0.
template <class H>
FAIRWAY_IN_KERNELS void read_row(const unsigned char* from, std::uint64_t left, Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = bytes_at(lane);
    row.words[i][0] = row.words[i][1] = 0;
    if (at >= left) continue;
    if (has_flag(lane)) {
      Elements<unsigned char, 8> bytes;
      load_bytes(from + at, left - at, bytes);
      row.words[i][0] = bytes.words[0];
    } else {
      Elements<unsigned char, 16> bytes;
      load_bytes(from + at, left - at, bytes);
      row.words[i][0] = bytes.words[0];
      row.words[i][1] = bytes.words[1];
    }
  }
}
template <class H>
FAIRWAY_IN_KERNELS void write_row(unsigned char* to, std::uint64_t left, const Row<H>& row) {
  FAIRWAY_UNROLL
  for (unsigned i = 0; i < H::kLanesHere; ++i) {
    const unsigned lane = H::row_lane(i), at = bytes_at(lane);
    if (at >= left) continue;
    if (has_flag(lane)) {
      Elements<unsigned char, 8> bytes;
      bytes.words[0] = row.words[i][0];
      store_bytes(to + at, left - at, bytes);
    } else {
      Elements<unsigned char, 16> bytes;
      bytes.words[0] = row.words[i][0];
      bytes.words[1] = row.words[i][1];
      store_bytes(to + at, left - at, bytes);
    }
  }
}

// A warp's part of a call.
template <class T, class H>
class Warp {
 public:
  FAIRWAY_IN_KERNELS Warp(Channel<H>& channel, unsigned warp, std::uint64_t block_bytes)
      : channel_(channel),
        call_(channel.call()),
        lines_(channel.lines()),
        block_bytes_(block_bytes),
        nth_(channel.block() * lines_.warps + warp) {}

  // False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round) {
    return exchange_lines(
        channel_, round, lines_.rounds, [&](std::uint32_t nth, LineRound to) { send(nth, to); },
        [&](std::uint32_t nth, LineRound from) { return reduces(call_.work) ? combine(nth, from) : take(nth, from); });
  }

 private:
  // Rows whose loads are on their way together; sums take more registers.
  static constexpr unsigned kMoved = 4, kCombined = sizeof(T) < 4 ? 2 : 4;
  template <unsigned kRows>
  using Batch = Row<H>[kRows];

  // This warp's rows of a round: [begin, begin + bytes) of a block, at least one row, be it empty.
  struct Span {
    std::uint64_t begin, end;  // of the block
    std::uint32_t rows;
  };
  FAIRWAY_IN_KERNELS Span span(std::uint32_t nth, std::uint64_t block_bytes) const {
    const std::uint64_t first =
        (static_cast<std::uint64_t>(nth) * lines_.blocks * lines_.warps + nth_) * lines_.rows * kRowBytes;
    const std::uint64_t begin = at_most(first, block_bytes);
    const std::uint64_t end = at_most(first + std::uint64_t{lines_.rows} * kRowBytes, block_bytes);
    const auto rows = static_cast<std::uint32_t>((end - begin + kRowBytes - 1) / kRowBytes);
    return {begin, end, rows == 0 ? 1 : rows};
  }
  FAIRWAY_IN_KERNELS unsigned peer(unsigned k) const {
    const unsigned next = call_.rank + k;
    return next < call_.size ? next : next - call_.size;
  }

  // Whether all bytes of so many rows are there, at a multiple of 16: then nothing stands between their accesses, and
  // all are on their way together.
  static FAIRWAY_IN_KERNELS bool are_whole(const unsigned char* at, std::uint64_t left, unsigned rows) {
    return left >= std::uint64_t{rows} * kRowBytes && reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
  }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void read(const unsigned char* block, const Span& all, std::uint32_t first,
                               Batch<kRows>& rows) const {
    const std::uint64_t at = all.begin + std::uint64_t{first} * kRowBytes;
    if (are_whole(block + at, all.end - at_most(at, all.end), kRows)) {
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) read_whole_row(block + at + k * kRowBytes, rows[k]);
      return;
    }
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k)
      if (first + k < all.rows) {
        const std::uint64_t row = at + k * kRowBytes;
        read_row(block + row, row < all.end ? all.end - row : 0, rows[k]);
      }
  }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void write(unsigned char* block, const Span& all, std::uint32_t first,
                                const Batch<kRows>& rows) const {
    const std::uint64_t at = all.begin + std::uint64_t{first} * kRowBytes;
    if (are_whole(block + at, all.end - at_most(at, all.end), kRows)) {
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) write_whole_row(block + at + k * kRowBytes, rows[k]);
      return;
    }
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k)
      if (first + k < all.rows) {
        const std::uint64_t row = at + k * kRowBytes;
        write_row(block + row, row < all.end ? all.end - row : 0, rows[k]);
      }
  }
  FAIRWAY_IN_KERNELS std::uint32_t index(std::uint32_t row) const { return nth_ * lines_.rows + row; }
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS void store(unsigned to, LineRound round, const Span& all, std::uint32_t first,
                                const Batch<kRows>& rows) const {
    const std::uint64_t flag = line_flag_of(round, call_.digest);
    FAIRWAY_UNROLL
    for (unsigned k = 0; k < kRows; ++k)
      if (first + k < all.rows) {
        Row<H> row = rows[k];
        FAIRWAY_UNROLL
        for (unsigned i = 0; i < H::kLanesHere; ++i)
          if (has_flag(H::row_lane(i))) row.words[i][1] = flag;
        H::store_row(channel_.row(to, call_.rank, round, index(first + k)), row.words);
      }
  }
  // Waits for rows [first, first + kRows) of `rows` from that rank. False: it has failed.
  template <unsigned kRows>
  FAIRWAY_IN_KERNELS bool load(unsigned from, LineRound round, std::uint32_t first, std::uint32_t rows,
                               Batch<kRows>& out) const {
    const std::uint64_t flag = line_flag_of(round, call_.digest);
    for (;;) {
      bool all = true;
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) {  // beyond the end the last one again, so that no branch lies between
        const std::uint32_t row = first + k < rows ? first + k : rows - 1;
        H::load_row(channel_.row(call_.rank, from, round, index(row)), out[k].words);
      }
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kRows; ++k) FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i)
        if (has_flag(H::row_lane(i))) all = all && out[k].words[i][1] == flag;
      if (H::all_of_row(all)) return true;
      if (!H::all_of_row(!channel_.gives_up(from, Waits::lines))) return false;
    }
  }

  FAIRWAY_IN_KERNELS void send(std::uint32_t nth, LineRound round) const {
    const Span all = span(nth, block_bytes_);
    Batch<kMoved> rows = {};
    if (!sends(call_, call_.rank)) {  // only that it is there
      const Span none{0, 0, 1};
      for (unsigned k = 1; k < call_.size; ++k) store(peer(k), round, none, 0, rows);
      return;
    }
    FAIRWAY_NOT_UNROLLED
    for (std::uint32_t first = 0; first < all.rows; first += kMoved) FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {  // each begins with another, so that not all send to one
      const unsigned to = peer(k);
      if (k == 1 || is_to_each(call_.work)) read(input_for(call_, to, block_bytes_), all, first, rows);
      store(to, round, all, first, rows);
    }
  }

  FAIRWAY_IN_KERNELS bool take(std::uint32_t nth, LineRound round) const {
    const Span all = span(nth, block_bytes_);
    Batch<kMoved> rows;
    if (const unsigned char* const own = input_for(call_, call_.rank, block_bytes_);
        sends(call_, call_.rank) && output_from(call_, call_.rank, block_bytes_) != own) {
      FAIRWAY_NOT_UNROLLED
      for (std::uint32_t first = 0; first < all.rows; first += kMoved) {
        read(own, all, first, rows);
        write(output_from(call_, call_.rank, block_bytes_), all, first, rows);
      }
    }
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {
      const unsigned from = peer(k);
      const std::uint32_t count = sends(call_, from) ? all.rows : 1;
      FAIRWAY_NOT_UNROLLED
      for (std::uint32_t first = 0; first < count; first += kMoved) {
        if (!load(from, round, first, count, rows)) return false;
        if (sends(call_, from)) write(output_from(call_, from, block_bytes_), all, first, rows);
      }
    }
    return true;
  }

  FAIRWAY_IN_KERNELS bool combine(std::uint32_t nth, LineRound round) const {
    const Span all = span(nth, block_bytes_);
    FAIRWAY_NOT_UNROLLED
    for (std::uint32_t first = 0; first < all.rows; first += kCombined) {
      Sums<T, 16> sums[kCombined][H::kLanesHere];
      Batch<kCombined> mine = {}, rows = {};
      read(input_for(call_, call_.rank, block_bytes_), all, first, mine);
      FAIRWAY_NOT_UNROLLED
      for (unsigned rank = 0; rank < call_.size; ++rank) {
        if (rank != call_.rank && !load(rank, round, first, all.rows, rows)) return false;
        FAIRWAY_UNROLL
        for (unsigned k = 0; k < kCombined; ++k) FAIRWAY_UNROLL
        for (unsigned i = 0; i < H::kLanesHere; ++i) {
          Elements<T, 16> next;
          next.words[0] = rank == call_.rank ? mine[k].words[i][0] : rows[k].words[i][0];
          next.words[1] = rank == call_.rank ? mine[k].words[i][1] : rows[k].words[i][1];
          if (first + k < all.rows) sums[k][i].add(call_.combine, rank, next);
        }
      }
      FAIRWAY_UNROLL
      for (unsigned k = 0; k < kCombined; ++k) FAIRWAY_UNROLL
      for (unsigned i = 0; i < H::kLanesHere; ++i) {
        const auto sum = sums[k][i].end(call_.combine, call_.size);
        rows[k].words[i][0] = sum.words[0];
        rows[k].words[i][1] = sum.words[1];
      }
      write(call_.output, all, first, rows);
    }
    return true;
  }

  Channel<H>& channel_;
  const Call& call_;
  const Lines& lines_;
  const std::uint64_t block_bytes_;
  const unsigned nth_;
};

template <class T, class H>
FAIRWAY_IN_KERNELS void run_lines(Channel<H>& channel, std::uint64_t block_bytes) {
  const Lines& lines = channel.lines();
  if (channel.block() >= lines.blocks) return;
  const LineRound round = channel.line_round();
  bool good = true;
  H::each_warp(lines.warps, [&](unsigned warp) { good = good && Warp<T, H>(channel, warp, block_bytes).run(round); });
  H::let_next_begin();       // nothing is waited for any more
  (void)channel.any(!good);  // all are done with it
}

}  // namespace fairway::collectives::gpu

#pragma once

#include "collectives/gpu/device/call.h"
#include "collectives/gpu/device/slots.h"
#include "collectives/gpu/device/work.h"

// What a further kernel moves: a block of any size from each rank to each other, of which most may be empty. In an
// all_to_allv nobody knows the blocks of the other ranks, but the number of rounds is that of the largest. So ranks
// tell each other in words of their own, while the bytes of the first round are on their way.
namespace fairway::collectives::gpu {

template <class H>
class BlocksChannel : public Channel<H> {
 public:
  FAIRWAY_IN_KERNELS BlocksChannel(const FurtherCall& further, unsigned block)
      : Channel<H>(further.call, block), further_(further) {}

  // Bytes that the largest block of this rank has, but for the one that it keeps.
  [[nodiscard]] FAIRWAY_IN_KERNELS std::uint64_t own_most() const {
    std::uint64_t most = 0;
    for (unsigned rank = 0; rank < this->size(); ++rank) {
      if (rank == this->rank()) continue;
      if (further_.sends[rank] > most) most = further_.sends[rank];
      if (further_.takes[rank] > most) most = further_.takes[rank];
    }
    return most;
  }
  FAIRWAY_IN_KERNELS void tell_sizes() const {
    if (this->block() != 0) return;
    for (unsigned to = this->lane(); to < this->size(); to += this->lanes()) {
      if (to == this->rank()) continue;
      std::uint64_t* const at = words(to, this->rank());
      store(at, further_.sends[to]);
      store(at + 2, own_most());
    }
  }
  // Waits for all. Of all ranks, the most; the same on all of them, and in all blocks. False: it has failed.
  FAIRWAY_IN_KERNELS bool hear_sizes(std::uint64_t& most) {
    bool good = true;
    most = own_most();
    for (unsigned from = this->lane(); good && from < this->size(); from += this->lanes()) {
      if (from == this->rank()) continue;
      const std::uint64_t* const at = words(this->rank(), from);
      std::uint64_t sent = 0, theirs = 0;
      while (good && !(load(at, sent) && load(at + 2, theirs))) good = !this->gives_up(from, Waits::start);
      if (theirs > most) most = theirs;
      if (!good || this->block() != 0 || sent == further_.takes[from]) continue;
      Report& report = *this->call().report;
      H::store(&report.sent[from], sent);
      H::store(&report.expected[from], further_.takes[from]);
      this->mismatch(from);
      good = false;
    }
    if (this->any(!good)) return false;
    most = H::most(most);
    return true;
  }

 private:
  // Of calls in turns: who is a call ahead has ended this one, and so has every rank that it has heard of.
  FAIRWAY_IN_KERNELS std::uint64_t* words(unsigned owner, unsigned from) const {
    auto* const head = reinterpret_cast<SizesHead*>(this->call().scratch[owner] + further_.sizes_at);
    return head->words[this->number() % 2][from];
  }
  FAIRWAY_IN_KERNELS void store(std::uint64_t* at, std::uint64_t size) const {
    H::store_pair(reinterpret_cast<unsigned char*>(at), size_word(this->number(), size, false),
                  size_word(this->number(), size, true));
  }
  FAIRWAY_IN_KERNELS bool load(const std::uint64_t* at, std::uint64_t& size) const {
    std::uint64_t low = 0, high = 0;
    H::load_pair(reinterpret_cast<const unsigned char*>(at), low, high);
    size = high << 32 | (low & 0xFFFFFFFF);
    return low >> 32 == this->number() && high >> 32 == this->number();
  }
  const FurtherCall& further_;
};

template <class H, class F>
class BlocksWarp : SlotWarp<H, F> {
 public:
  FAIRWAY_IN_KERNELS BlocksWarp(Channel<H>& channel, unsigned warp, const FurtherCall& further)
      : SlotWarp<H, F>(channel, warp), further_(further) {}

  FAIRWAY_IN_KERNELS void send(std::uint32_t nth, LineRound round) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {  // each begins with another, so that not all send to one
      const unsigned to = this->peer(k);
      this->send_span(this->span(nth, further_.sends[to]), call_.input + further_.send_at[to],
                      [&](std::uint32_t first, const auto& rows) { this->store(to, round, first, rows); });
    }
  }
  // All rounds, of which the first was sent. False: it has failed.
  FAIRWAY_IN_KERNELS bool run(LineRound round, std::uint32_t rounds) const {
    return exchange_begun_lines(
        channel_, round, rounds, [&](std::uint32_t nth, LineRound to) { send(nth, to); },
        [&](std::uint32_t nth, LineRound from) { return take(nth, from); });
  }

 private:
  FAIRWAY_IN_KERNELS bool take(std::uint32_t nth, LineRound round) const {
    FAIRWAY_NOT_UNROLLED
    for (unsigned k = 1; k < call_.size; ++k) {
      const unsigned from = this->peer(call_.size - k);  // in the order in which the others send to this one
      if (!this->take_span(this->span(nth, further_.takes[from]), call_.output + further_.take_at[from],
                           [&](std::uint32_t first, auto& rows) { return this->load(from, round, first, rows); }))
        return false;
    }
    return true;
  }

  using Base = SlotWarp<H, F>;
  using Base::call_, Base::channel_;
  const FurtherCall& further_;
};

// This block's share of what the rank has for itself.
template <class H>
FAIRWAY_IN_KERNELS void keep_own_block(const BlocksChannel<H>& channel, const FurtherCall& further) {
  const Call& call = further.call;
  const std::uint64_t bytes = further.sends[call.rank], vectors = (bytes + 15) / 16;
  const std::uint64_t begin = at_most(bytes, part_of(vectors, channel.block(), call.blocks) * 16);
  const std::uint64_t end = at_most(bytes, part_of(vectors, channel.block() + 1, call.blocks) * 16);
  const unsigned char* const from = call.input + further.send_at[call.rank];
  unsigned char* const to = call.output + further.take_at[call.rank];
  if (bytes != 0 && from != to) copy_bytes(channel, to + begin, from + begin, end - begin);
}

// How many rounds there were.
template <class F, class H>
FAIRWAY_IN_KERNELS std::uint32_t run_blocks(BlocksChannel<H>& channel, const FurtherCall& further) {
  using Warp = BlocksWarp<H, F>;
  const Lines& lines = channel.lines();
  const bool works = channel.block() < lines.blocks;
  const LineRound round = channel.line_round();
  if (further.sized != 0) channel.tell_sizes();
  if (works) H::each_warp(lines.warps, [&](unsigned warp) { Warp(channel, warp, further).send(0, round + 1); });
  keep_own_block(channel, further);
  std::uint32_t rounds = lines.rounds;
  bool good = true;
  if (further.sized != 0) {
    const std::uint64_t room = std::uint64_t{lines.blocks} * lines.warps * lines.rows * F::kBytes;
    std::uint64_t most = 0;
    good = channel.hear_sizes(most);
    rounds = most <= room ? 1 : static_cast<std::uint32_t>((most + room - 1) / room);
  }
  if (works && good)
    H::each_warp(lines.warps, [&](unsigned warp) { good = good && Warp(channel, warp, further).run(round, rounds); });
  H::let_next_begin();       // nothing is waited for any more
  (void)channel.any(!good);  // all are done with it
  return rounds;
}

}  // namespace fairway::collectives::gpu

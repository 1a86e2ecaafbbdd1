#pragma once

#include "collectives/gpu/device/work.h"

// What a block of a kernel does that reads the other ranks' memory where it is. docs/collectives.md has it as a table.
namespace fairway::collectives::gpu {

// The Machine of meet_in_phase().
template <class H>
class ReadingChannel : public Channel<H> {
 public:
  FAIRWAY_IN_KERNELS ReadingChannel(const ReadCall& call, unsigned block) : Channel<H>(call.call, block), read_(call) {}

  FAIRWAY_IN_KERNELS PhaseRound last_phase() const {
    const Call& call = this->call();
    return H::load(&reinterpret_cast<const PlaceHead*>(call.scratch[call.rank] + call.place_at)->phase_round);
  }
  FAIRWAY_IN_KERNELS void tell_phase(unsigned to, std::uint64_t word) { H::store(phase(to, this->rank()), word); }
  FAIRWAY_IN_KERNELS std::uint64_t load_phase(unsigned from) const {
    return H::load_acquire(phase(this->rank(), from));
  }
  FAIRWAY_IN_KERNELS const unsigned char* input_of(unsigned from) const {
    return from == this->rank() ? this->call().input : read_.inputs[from];
  }

 private:
  FAIRWAY_IN_KERNELS std::uint64_t* phase(unsigned owner, unsigned from) const {
    auto* const head = reinterpret_cast<PhaseHead*>(this->call().scratch[owner] + read_.phases_at);
    return &head->phases[this->block() * kMostRanks + from];
  }
  const ReadCall& read_;
};

// This block's share of what all ranks have for this one: of its part, or its block.
template <class T, class C>
FAIRWAY_IN_KERNELS void combine_read(C& channel) {
  const Call& call = channel.call();
  const bool is_sum = call.work == Work::reduce_to_all;
  const std::uint64_t block_bytes = call.count * sizeof(T);
  const std::uint64_t first = is_sum ? at_most(call.rank * call.part_bytes, block_bytes) : 0;
  const std::uint64_t bytes = is_sum ? at_most(call.part_bytes, block_bytes - first) : block_bytes;
  const std::uint64_t lines = (bytes + 127) / 128;
  const std::uint64_t begin = at_most(bytes, part_of(lines, channel.block(), call.blocks) * 128);
  const std::uint64_t end = at_most(bytes, part_of(lines, channel.block() + 1, call.blocks) * 128);
  const std::uint64_t at = (is_sum ? first : call.rank * block_bytes) + begin;
  unsigned char* const to = call.output + (is_sum ? first : 0) + begin;
  combine_bytes<T>(
      channel, [&](unsigned rank) { return channel.input_of(rank) + at; }, end - begin, &to, 1);
}

// All of it. T: what elements are, if they are combined; else it only meets the others.
template <class T, class H>
FAIRWAY_IN_KERNELS void read_block(const ReadCall& call, unsigned block) {
  ReadingChannel<H> channel(call, block);
  if (!channel.enter()) return;
  PhaseRound phase = channel.last_phase() + 1;
  const std::uint64_t digest = call.call.digest;
  if constexpr (kCombines<T>) {
    if (meet_in_phase(channel, phase, digest)) {
      combine_read<T>(channel);
      channel.in_round(2);
      H::let_next_begin();
      (void)meet_in_phase(channel, ++phase, digest);
    }
  } else {
    H::let_next_begin();
    (void)meet_in_phase(channel, phase, digest);
  }
  channel.leave(phase, call.ends != 0);
}

}  // namespace fairway::collectives::gpu

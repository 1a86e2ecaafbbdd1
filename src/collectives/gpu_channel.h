#pragma once

#include <cstdint>

#include "collectives/gpu_call.h"

// The Machine of gpu_exchange.h on real memory: where words lie, and when a kernel gives up.
namespace fairway::collectives::gpu {

// One block of a kernel. H, the hardware's accesses (a GPU's in gpu_kernels.cu, a CPU's in the stand-in driver):
//   lane(), lanes(), meet(), any()
//   store_pair(address, a, b), load_pair(address, a&, b&): two 8-byte words, each whole, in no order
//   store(word, value), load(word): whole, in no order; load_acquire(word)
//   fence(): what the block wrote before the last meet() comes before what this lane stores from here on
//   take(word): 0 to 1, by one lane of the GPU alone; count(word): adds one, and returns the sum
//   now(): nanoseconds; rest(): between looks
template <class H>
class Channel {
 public:
  FAIRWAY_IN_KERNELS Channel(const Call& call, unsigned block)
      : call_(call), block_(block), deadline_(H::now() + call.nanoseconds) {
    number_ = H::load(&place(call.rank)->calls) + 1;
    digest_ = call.digest;
    parity_bytes_ = static_cast<std::uint64_t>(call.size) * call.units * 16;
  }

  FAIRWAY_IN_KERNELS unsigned lane() const { return H::lane(); }
  FAIRWAY_IN_KERNELS unsigned lanes() const { return H::lanes(); }
  FAIRWAY_IN_KERNELS void meet() { H::meet(); }
  FAIRWAY_IN_KERNELS bool any(bool one) { return H::any(one); }
  FAIRWAY_IN_KERNELS unsigned rank() const { return call_.rank; }
  FAIRWAY_IN_KERNELS unsigned size() const { return call_.size; }
  FAIRWAY_IN_KERNELS const Call& call() const { return call_; }
  FAIRWAY_IN_KERNELS unsigned block() const { return block_; }

  // ---- beginning and end ----
  // Tells the others that this rank is in the call. False: an earlier one has failed.
  FAIRWAY_IN_KERNELS bool enter() {
    const bool failed = H::load(&head(rank())->failed) != 0;
    if (!failed && block_ == 0)
      for (unsigned to = lane(); to < size(); to += lanes())
        if (to != rank()) H::store(&place(to)->entered[rank()], entered_word(number_, digest_));
    return !any(failed);
  }
  FAIRWAY_IN_KERNELS Round unit_round() const { return H::load(&place(rank())->unit_rounds[block_]); }
  FAIRWAY_IN_KERNELS Round piece_round() const { return H::load(&place(rank())->piece_rounds[block_]); }
  // The block has ended, after that round. The last block's end is the call's.
  FAIRWAY_IN_KERNELS void leave(Way way, Round round) {
    H::meet();
    if (lane() != 0) return;
    PlaceHead* const own = place(rank());
    H::store(way == Way::units ? &own->unit_rounds[block_] : &own->piece_rounds[block_], round);
    if (H::count(&own->ended_blocks) != call_.blocks) return;
    H::store(&own->ended_blocks, std::uint32_t{0});
    H::store(&own->calls, number_);
  }
  // In which round the block is, for errors.
  FAIRWAY_IN_KERNELS void in_round(std::uint32_t nth) { nth_ = nth; }

  // ---- units ----
  FAIRWAY_IN_KERNELS void store_unit(unsigned to, std::uint32_t index, Round round, std::uint64_t data) {
    const std::uint64_t flag = static_cast<std::uint64_t>(round) << 32;
    H::store_pair(units(to, rank(), round) + index * 16ULL, flag | (data & 0xFFFFFFFF), flag | data >> 32);
  }
  FAIRWAY_IN_KERNELS bool load_unit(unsigned from, std::uint32_t index, Round round, std::uint64_t& data) const {
    std::uint64_t low = 0, high = 0;
    H::load_pair(units(rank(), from, round) + index * 16ULL, low, high);
    data = high << 32 | (low & 0xFFFFFFFF);
    return low >> 32 == round && high >> 32 == round;
  }
  FAIRWAY_APART void clear_units(Round round) {
    unsigned char* const begin = units(rank(), 0, round);
    for (std::uint64_t at = lane() * 16ULL; at < parity_bytes_; at += lanes() * 16ULL) H::store_pair(begin + at, 0, 0);
  }

  // ---- pieces ----
  FAIRWAY_IN_KERNELS void release() { H::fence(); }
  FAIRWAY_IN_KERNELS void store_flag(unsigned to, std::uint64_t value) { H::store(flag(to, rank()), value); }
  FAIRWAY_IN_KERNELS std::uint64_t load_flag(unsigned from) const { return H::load_acquire(flag(rank(), from)); }
  // The place at `owner` for what `from` sends it.
  FAIRWAY_IN_KERNELS unsigned char* pieces(unsigned owner, unsigned from, Round round) const {
    return call_.scratch[owner] + call_.pieces_at +
           ((block_ * 2ULL + gpu::place_of(round)) * size() + from) * call_.piece_bytes;
  }

  // ---- giving up ----
  FAIRWAY_APART void mismatch(unsigned from) { fail(Cause::mismatch, from, Waits::start, {}); }
  FAIRWAY_APART bool gives_up(unsigned from, Waits waits) {
    H::rest();
    if (++looks_ % kLooksPerQuestion != 0) return false;
    if (H::load(&head(rank())->failed) != 0) return true;
    const std::uint64_t theirs = H::load(&place(rank())->entered[from]);
    const bool entered = static_cast<std::uint32_t>(theirs) == number_;
    if (entered && theirs != entered_word(number_, digest_)) return fail(Cause::mismatch, from, waits, {});
    for (unsigned by = 0; by < size(); ++by) {
      const std::uint64_t told = H::load(&head(rank())->told[by]);
      // A rank that failed in a later call of this place has ended this one well, and so will this rank.
      if (told == 0 || (place_in(told) == call_.place && static_cast<std::int32_t>(told - number_) > 0)) continue;
      return fail(Cause::told, static_cast<unsigned>(told >> 56 & 15), static_cast<Waits>(told >> 52 & 15),
                  {by, static_cast<std::uint32_t>(told >> 60)});
    }
    if (H::now() >= deadline_) return fail(Cause::late, from, waits, {rank(), 0, entered});
    // Words of the host's memory: each look takes a microsecond.
    if (looks_ % (kLooksPerQuestion * kQuestionsPerHost) != 0) return false;
    if (H::load(call_.stop) != 0) return fail(Cause::stopped, rank(), waits, {});
    const std::uint32_t* const ended = call_.ended[from];
    const std::uint32_t code = ended == nullptr ? 0 : H::load(ended);
    return code != 0 && fail(Cause::gone, from, waits, {rank(), code});
  }

 private:
  static constexpr std::uint32_t kLooksPerQuestion = H::kLooksPerQuestion, kQuestionsPerHost = 16;

  struct Detail {
    unsigned by = 0;
    std::uint32_t code = 0;
    bool entered = false;
  };

  FAIRWAY_IN_KERNELS static unsigned place_in(std::uint64_t told) { return static_cast<unsigned>(told >> 32 & 0xFFF); }
  FAIRWAY_IN_KERNELS ScratchHead* head(unsigned owner) const {
    return reinterpret_cast<ScratchHead*>(call_.scratch[owner]);
  }
  FAIRWAY_IN_KERNELS PlaceHead* place(unsigned owner) const {
    return reinterpret_cast<PlaceHead*>(call_.scratch[owner] + call_.place_at);
  }
  FAIRWAY_IN_KERNELS unsigned char* units(unsigned owner, unsigned from, Round round) const {
    return call_.scratch[owner] + call_.units_at +
           ((block_ * 2ULL + gpu::place_of(round)) * size() + from) * call_.units * 16;
  }
  FAIRWAY_IN_KERNELS std::uint64_t* flag(unsigned owner, unsigned from) const {
    return reinterpret_cast<std::uint64_t*>(call_.scratch[owner] + call_.flags_at) + block_ * size() + from;
  }
  // The first lane of the GPU that fails reports it, and tells the other ranks. Always true.
  FAIRWAY_APART bool fail(Cause cause, unsigned peer, Waits waits, const Detail& detail) {
    if (!H::take(&head(rank())->failed)) return true;
    Report& report = *call_.report;
    H::store(reinterpret_cast<std::uint32_t*>(&report.cause), static_cast<std::uint32_t>(cause));
    H::store(&report.peer, static_cast<std::uint32_t>(peer));
    H::store(&report.by, static_cast<std::uint32_t>(detail.by));
    H::store(&report.waits, static_cast<std::uint32_t>(waits));
    H::store(&report.code, detail.code);
    H::store(&report.place, call_.place);
    H::store(&report.call, number_);
    H::store(&report.round, nth_);
    H::store(&report.entered, static_cast<std::uint32_t>(detail.entered));
    H::store(&report.kind, call_.kind);
    H::store(&report.number, call_.number);
    H::fence();
    H::store(&report.state, std::uint32_t{1});
    const std::uint64_t word = told_word(cause, peer, waits, call_.place, number_);
    for (unsigned to = 0; to < size() && cause != Cause::told; ++to)
      if (to != rank()) H::store(&head(to)->told[rank()], word);
    return true;
  }

  const Call& call_;
  const unsigned block_;
  const std::uint64_t deadline_;
  std::uint64_t digest_ = 0, parity_bytes_ = 0;
  std::uint32_t number_ = 0, nth_ = 1, looks_ = 0;
};

}  // namespace fairway::collectives::gpu

#pragma once

#include <cstdint>

#include "collectives/gpu/device/call.h"

// The Machine of exchange.h on real memory: where words lie, and when a kernel gives up.
namespace fairway::collectives::gpu {

// One block of a kernel. H, the hardware's accesses (a GPU's in kernels.cu, a CPU's in the stand-in driver):
//   lane(), lanes(), meet(), any()
//   store_pair(address, a, b), load_pair(address, a&, b&): two 8-byte words, each whole, in no order
//   store(word, value), load(word): whole, in no order; load_acquire(word)
//   from_first(word): lane 0's, to all, which meet
//   fence(): what the block wrote before the last meet() comes before what this lane stores from here on
//   take(word, from, to): changes it if it is `from`, by one lane of the GPU alone. count(word): adds one, and returns
//   the sum; what each counter did before comes before what the last one does from there on. count_only(): in no order
//   now(): nanoseconds; rest(): between looks
//   rows of lines: see rows.h
template <class H>
class Channel {
 public:
  // What it reads is on its way at once; nothing waits for it yet.
  FAIRWAY_IN_KERNELS Channel(const Call& call, unsigned block)
      : call_(call), block_(block), failed_(H::load(&head(call.rank)->failed)) {
    const PlaceHead* const own = place(call.rank);
    number_ = H::load(&own->calls) + 1;
    if (block < kUnitChannels) unit_round_ = H::load(&own->unit_rounds[block]);
    line_round_ = H::load(&own->line_round);
    if (call.wants_area == 0) return;
    grant_ = H::load(&own->grants) + 1;
    deadline_ = H::now() + call.nanoseconds;
  }

  FAIRWAY_IN_KERNELS unsigned lane() const { return H::lane(); }
  FAIRWAY_IN_KERNELS unsigned lanes() const { return H::lanes(); }
  FAIRWAY_IN_KERNELS void meet() { H::meet(); }
  FAIRWAY_IN_KERNELS bool any(bool one) { return H::any(one); }
  FAIRWAY_IN_KERNELS unsigned rank() const { return call_.rank; }
  FAIRWAY_IN_KERNELS unsigned size() const { return call_.size; }
  FAIRWAY_IN_KERNELS const Call& call() const { return call_; }
  FAIRWAY_IN_KERNELS unsigned block() const { return block_; }
  // Which of its place's calls it is.
  FAIRWAY_IN_KERNELS std::uint32_t number() const { return number_; }

  // ---- beginning and end ----
  // Tells the others that this rank is in the call, and gets the area if it is free. False: an earlier call has
  // failed, or this one gives up.
  FAIRWAY_IN_KERNELS bool enter() {
    if (failed_ == 0 && block_ == 0) {
      for (unsigned to = lane(); to < size(); to += lanes())
        if (to != rank()) H::store(&place(to)->entered[rank()], entered_word(number_, call_.digest));
    }
    if (any(failed_ != 0)) return false;  // not every lane need have seen it
    return call_.wants_area == 0 || gets_area();
  }
  [[nodiscard]] FAIRWAY_IN_KERNELS bool has_area() const { return has_area_; }
  FAIRWAY_IN_KERNELS Round unit_round() const { return unit_round_; }
  FAIRWAY_IN_KERNELS Round piece_round() const { return H::load(&area_head(rank())->piece_rounds[block_]); }
  FAIRWAY_IN_KERNELS void keep_unit_round(Round round) {
    if (lane() == 0) H::store(&place(rank())->unit_rounds[block_], round);
  }
  FAIRWAY_IN_KERNELS void keep_piece_round(Round round) {
    if (lane() == 0) H::store(&area_head(rank())->piece_rounds[block_], round);
  }
  // The block has ended. The last block's end is the call's.
  // `phase`: the last one of a call that reads; `ends`: else other kernels of the same call follow. `rounds`: 0, or how
  // many of lines there were, which the call does not say.
  FAIRWAY_IN_KERNELS void leave(PhaseRound phase = 0, bool ends = true, std::uint32_t rounds = 0) {
    if (has_pieces()) meet();  // they are not read any more
    if (block_ == 0 && looks_ >= kLooksPerQuestion * kQuestionsPerHost) tell(&call_.told->waits, 0, 0);
    if (lane() != 0) return;
    PlaceHead* const own = place(rank());
    if (call_.marks != nullptr)  // it has one block
      H::store(call_.marks, mark_word(number_, call_.work != Work::mark, call_.number, call_.kind));
    if (call_.blocks > 1) {
      // What was read of lines had come before, and what follows the next kernel alone reads: so nothing need be in
      // order.
      if ((has_pieces() ? H::count(&own->ended_blocks) : H::count_only(&own->ended_blocks)) != call_.blocks) return;
      H::store(&own->ended_blocks, std::uint32_t{0});
    }
    if (ends) H::store(&own->calls, number_);
    if (phase != 0) H::store(&own->phase_round, phase);
    if (!has_area_) H::store(&own->line_round, last_of(rounds));
    if (call_.wants_area == 0) return;
    H::store(&own->grants, grant_);
    if (has_area() && H::load(&head(rank())->failed) == 0) give_area_back(rounds);
  }
  // In which round the block is, for errors.
  FAIRWAY_IN_KERNELS void in_round(std::uint32_t nth) { nth_ = nth; }

  // ---- units ----
  // The second flag has the call in it, too.
  FAIRWAY_IN_KERNELS void store_unit(unsigned to, std::uint32_t index, Round round, std::uint64_t data) {
    H::store_pair(unit(to, rank(), round) + index * 16ULL,
                  static_cast<std::uint64_t>(round) << 32 | (data & 0xFFFFFFFF),
                  static_cast<std::uint64_t>(second_flag(round)) << 32 | data >> 32);
  }
  FAIRWAY_IN_KERNELS bool load_unit(unsigned from, std::uint32_t index, Round round, std::uint64_t& data) const {
    std::uint64_t low = 0, high = 0;
    H::load_pair(unit(rank(), from, round) + index * 16ULL, low, high);
    data = high << 32 | (low & 0xFFFFFFFF);
    return low >> 32 == round && high >> 32 == second_flag(round);
  }
  FAIRWAY_IN_KERNELS void clear_units(Round round) {
    for (unsigned from = 0; from < size(); ++from) {
      if (from == rank()) continue;
      unsigned char* const begin = unit(rank(), from, round);
      for (std::uint32_t i = lane(); i < call_.units.count; i += lanes()) H::store_pair(begin + i * 16ULL, 0, 0);
    }
  }

  // ---- lines ----
  [[nodiscard]] FAIRWAY_IN_KERNELS const Lines& lines() const { return has_area_ ? call_.area_lines : call_.lines; }
  // The last one so far: of this place, or of the area.
  FAIRWAY_IN_KERNELS LineRound line_round() const { return line_round_; }
  [[nodiscard]] FAIRWAY_IN_KERNELS LineRound last_line_round() const {
    return line_round_ + lines().rounds * (call_.way == Way::two_shot ? 2U : 1U);
  }
  // The row at `owner` for what `from` sends it.
  FAIRWAY_IN_KERNELS unsigned char* row(unsigned owner, unsigned from, LineRound round, std::uint32_t index) const {
    const Lines& all = lines();
    return call_.scratch[owner] + all.at + line_place_of(round) * std::uint64_t{all.place_bytes} +
           (index * (size() - 1) + (from < owner ? from : from - 1)) * std::uint64_t{kRowMemory};
  }

  // ---- pieces ----
  FAIRWAY_IN_KERNELS void release() { H::fence(); }
  FAIRWAY_IN_KERNELS void store_flag(unsigned to, std::uint64_t value) { H::store(flag(to, rank()), value); }
  FAIRWAY_IN_KERNELS std::uint64_t load_flag(unsigned from) const { return H::load_acquire(flag(rank(), from)); }
  // The place at `owner` for what `from` sends it.
  FAIRWAY_IN_KERNELS unsigned char* pieces(unsigned owner, unsigned from, Round round) const {
    return call_.scratch[owner] + call_.area.pieces_at +
           nth_place(owner, from, piece_place_of(round), kPiecePlaces) * call_.area.piece_bytes;
  }

  // ---- giving up ----
  FAIRWAY_IN_KERNELS void mismatch(unsigned from) { fail(Cause::mismatch, from, Waits::start, {}); }
  FAIRWAY_IN_KERNELS bool gives_up(unsigned from, Waits waits) {
    H::rest();
    if (++looks_ % kLooksPerQuestion != 0) return false;
    if (H::load(&head(rank())->failed) != 0) return true;
    const std::uint64_t theirs = H::load(&place(rank())->entered[from]);
    const bool entered = static_cast<std::uint32_t>(theirs) == number_;
    if (entered && theirs != entered_word(number_, call_.digest)) return fail(Cause::mismatch, from, waits, {});
    for (unsigned by = 0; by < size(); ++by) {
      const std::uint64_t told = H::load(&head(rank())->told[by]);
      // A rank that failed in a later call of this place has ended this one well, and so will this rank.
      if (told == 0 || (place_in(told) == call_.place && static_cast<std::int32_t>(told - number_) > 0)) continue;
      return fail(Cause::told, static_cast<unsigned>(told >> 56 & 15), static_cast<Waits>(told >> 52 & 15),
                  {by, static_cast<std::uint32_t>(told >> 60)});
    }
    const std::uint64_t now = H::now();  // reading it takes a while: not within a short call that goes well
    if (deadline_ == 0) deadline_ = now + call_.nanoseconds;
    if (now >= deadline_) return fail(Cause::late, from, waits, {rank(), 0, entered});
    // Words of the host's memory: each look takes a microsecond.
    if (looks_ % (kLooksPerQuestion * kQuestionsPerHost) != 0) return false;
    if (block_ == 0) {
      tell(&call_.told->entered, told_entered(number_, call_.kind), call_.number);
      tell(&call_.told->waits, told_waits(number_, from), call_.nanoseconds - (deadline_ - now));
    }
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

  // Into memory of the host: nobody waits until it is there.
  FAIRWAY_IN_KERNELS static void tell(std::uint64_t* at, std::uint64_t first, std::uint64_t second) {
    H::store_pair(reinterpret_cast<unsigned char*>(at), first, second);
  }
  FAIRWAY_IN_KERNELS static unsigned place_in(std::uint64_t told) { return static_cast<unsigned>(told >> 32 & 0xFFF); }
  FAIRWAY_IN_KERNELS ScratchHead* head(unsigned owner) const {
    return reinterpret_cast<ScratchHead*>(call_.scratch[owner]);
  }
  FAIRWAY_IN_KERNELS PlaceHead* place(unsigned owner) const {
    return reinterpret_cast<PlaceHead*>(call_.scratch[owner] + call_.place_at);
  }
  FAIRWAY_IN_KERNELS AreaHead* area_head(unsigned owner) const {
    return reinterpret_cast<AreaHead*>(call_.scratch[owner] + call_.area.head_at);
  }
  // Among those of a kind: place `place` of `places` of this channel and that sender. An owner has none for itself.
  FAIRWAY_IN_KERNELS std::uint64_t nth_place(unsigned owner, unsigned from, unsigned place, unsigned places) const {
    return (std::uint64_t{block_} * places + place) * (size() - 1) + (from < owner ? from : from - 1);
  }
  FAIRWAY_IN_KERNELS unsigned char* unit(unsigned owner, unsigned from, Round round) const {
    return call_.scratch[owner] + call_.units.at +
           nth_place(owner, from, unit_place_of(round), kUnitPlaces) * call_.units.count * 16;
  }
  FAIRWAY_IN_KERNELS std::uint32_t second_flag(Round round) const {
    return round + static_cast<std::uint32_t>(call_.digest >> 32);
  }
  FAIRWAY_IN_KERNELS std::uint64_t* flag(unsigned owner, unsigned from) const {
    return reinterpret_cast<std::uint64_t*>(call_.scratch[owner] + call_.area.flags_at) + block_ * size() + from;
  }

  // ---- the area ----
  FAIRWAY_IN_KERNELS bool has_pieces() const { return has_area_ && call_.area_lines.rounds == 0; }
  // Rank 0 tells all ranks, itself too, whether the call has the area. There are two words, in turns: some blocks of a
  // call may look when other ranks are in the next one. False: gives up.
  FAIRWAY_IN_KERNELS bool gets_area() {
    constexpr std::uint64_t kGivesUp = 0;  // no call has this word
    std::uint64_t word = kGivesUp;
    bool good = true;
    if (lane() == 0) {
      const auto at = [&](unsigned of) { return &place(of)->grants_told[grant_ % 2]; };
      if (rank() == 0 && block_ == 0) {
        LineRound last = 0;
        const bool has = takes_area(last, good);
        for (unsigned to = 0; good && to < size(); ++to) H::store(at(to), grant_word(grant_, has, last));
      }
      while (good) {
        word = H::load_acquire(at(rank()));
        if (is_granted_or_not(word, grant_)) break;
        good = !gives_up(0, Waits::start);
      }
      if (!good) word = kGivesUp;
    }
    word = H::from_first(word);
    has_area_ = has_grant(word);
    if (has_area_) line_round_ = round_in(word);
    return word != kGivesUp;
  }
  // Of rank 0. If a call that it has not ended has the area, nobody waits for it: another rank's GPU may run that one
  // only after this one. A call that it has ended is one that all ranks have entered, so they will be done with it.
  // What the same place has had needs no wait: its rounds go on. False: it is taken, or `good` became false.
  FAIRWAY_IN_KERNELS bool takes_area(LineRound& last, bool& good) {
    AreaHead* const area = area_head(0);
    const std::uint64_t owner = H::load(&area->owner);
    last = round_in(owner);
    if (is_taken(owner) || !H::take(&area->owner, owner, area_owner(call_.place, true, last))) return false;
    if (area_owner(call_.place, false, last) == owner) return true;
    for (unsigned other = 1; other < size(); ++other)
      while (good && H::load_acquire(&area->done[other]) != last) good = !gives_up(other, Waits::start);
    H::fence();
    return good;
  }
  FAIRWAY_IN_KERNELS LineRound last_of(std::uint32_t rounds) const {
    return rounds == 0 ? last_line_round() : line_round_ + rounds;
  }
  FAIRWAY_IN_KERNELS void give_area_back(std::uint32_t rounds) {
    const LineRound last = has_pieces() ? line_round_ + 1 : last_of(rounds);
    if (has_pieces()) H::fence();
    if (rank() == 0)
      H::store(&area_head(0)->owner, area_owner(call_.place, false, last));
    else
      H::store(&area_head(0)->done[rank()], last);
  }

  // The first lane of the GPU that fails reports it, and tells the other ranks. Always true.
  FAIRWAY_IN_KERNELS bool fail(Cause cause, unsigned peer, Waits waits, const Detail& detail) {
    return report(call_, number_, nth_, cause, peer, waits, detail);
  }
  // Takes no channel, which is in registers.
  FAIRWAY_APART static bool report(const Call& call, std::uint32_t number, std::uint32_t nth, Cause cause,
                                   unsigned peer, Waits waits, Detail detail) {
    auto* const own = reinterpret_cast<ScratchHead*>(call.scratch[call.rank]);
    if (!H::take(&own->failed, std::uint32_t{0}, std::uint32_t{1})) return true;
    Report& report = *call.report;
    H::store(reinterpret_cast<std::uint32_t*>(&report.cause), static_cast<std::uint32_t>(cause));
    H::store(&report.peer, static_cast<std::uint32_t>(peer));
    H::store(&report.by, static_cast<std::uint32_t>(detail.by));
    H::store(&report.waits, static_cast<std::uint32_t>(waits));
    H::store(&report.code, detail.code);
    H::store(&report.place, call.place);
    H::store(&report.call, number);
    H::store(&report.round, nth);
    H::store(&report.entered, static_cast<std::uint32_t>(detail.entered));
    H::store(&report.kind, call.kind);
    H::store(&report.number, call.number);
    H::fence();
    H::store(&report.state, std::uint32_t{1});
    const std::uint64_t word = told_word(cause, peer, waits, call.place, number);
    for (unsigned to = 0; to < call.size && cause != Cause::told; ++to)
      if (to != call.rank) H::store(&reinterpret_cast<ScratchHead*>(call.scratch[to])->told[call.rank], word);
    return true;
  }

  const Call& call_;
  const unsigned block_;
  const std::uint32_t failed_;
  std::uint64_t deadline_ = 0;  // 0: of a short call, from when it first asks
  Round unit_round_ = 0;
  LineRound line_round_ = 0;
  std::uint32_t number_ = 0, grant_ = 0, nth_ = 1, looks_ = 0;
  bool has_area_ = false;
};

}  // namespace fairway::collectives::gpu

// size: one protocol, the programs that run it, and the memory that they share
#include <array>
#include <memory>
#include <optional>

#include "collectives/gpu/device/exchange.h"
#include "model/mutants.h"
#include "support/at_length.h"

// The protocol by which ranks' kernels exchange bytes: every interleaving of a few rounds, with ranks that come late
// (whoever waits may give up at any look), and ranks that die after any of their steps.
namespace fairway::model {
namespace {

namespace gpu = collectives::gpu;
using gpu::Round;

constexpr unsigned kRanks = 3;  // at most

// The bugs to plant.
enum class ExchangeBug {
  none,
  any_flag,
  few_places,
  half_a_unit,
  flag_before_data,
  gives_up_well,
  digest_unchecked,
  same_place_again,  // lines: a call begins with the place with which the last one ended
  nothing_sent,      // lines: who has no bytes sends no line
  sums_early,        // lines in two steps: sums are sent before the parts have come
};

struct Trial {
  unsigned ranks = 2;
  unsigned rounds = 3;
  unsigned units = 1;
  bool halves = true;  // a unit is two words, as on GPUs; else one, so that three ranks fit the model
  unsigned ahead = 1;  // by pieces: see exchange_pieces()
  unsigned calls = 1;  // one after the other, of so many rounds each
  unsigned looks = 1;  // before a rank gives up
  int dies = -1;       // this rank, after so many steps:
  unsigned steps = 0;
  bool differ = false;  // the ranks call different things
  ExchangeBug bug = ExchangeBug::none;
};

using UnitWord = ModelAtomics::Atomic<std::uint64_t>;

// The memory of all ranks: by owner, parity, sender.
struct UnitMemory {
  explicit UnitMemory(const Trial& trial) {
    for (unsigned owner = 0; owner < trial.ranks; ++owner)
      for (unsigned from = 0; from < trial.ranks; ++from)
        for (unsigned i = 0; from != owner && i < 2 * trial.units; ++i)
          for (unsigned half = 0; half < (trial.halves ? 2U : 1U); ++half) words[owner][from][i][half].emplace();
  }
  std::optional<UnitWord> words[kRanks][kRanks][4][2];
};
struct PieceMemory {
  explicit PieceMemory(const Trial& trial) {
    for (unsigned owner = 0; owner < trial.ranks; ++owner)
      for (unsigned from = 0; from < trial.ranks; ++from) {
        if (from == owner) continue;
        flags[owner][from].emplace();
        for (auto& place : places[owner][from]) place.emplace();
      }
  }
  std::optional<UnitWord> flags[kRanks][kRanks];
  std::optional<Tracked> places[kRanks][kRanks][gpu::kPiecePlaces];
};

// By owner, place, channel, sender. A line is one word: the hardware writes and reads it as one.
struct LineMemory {
  static constexpr unsigned kChannels = 2;
  explicit LineMemory(const Trial& trial) {
    for (unsigned owner = 0; owner < trial.ranks; ++owner)
      for (unsigned from = 0; from < trial.ranks; ++from)
        for (unsigned i = 0; from != owner && i < 2 * kChannels; ++i) words[owner][from][i].emplace();
  }
  std::optional<UnitWord> words[kRanks][kRanks][2 * kChannels];
};

class Machine {
 public:
  Machine(const Trial& trial, unsigned rank, UnitMemory* units, PieceMemory* pieces)
      : trial_(trial), rank_(rank), units_(units), pieces_(pieces) {}

  static unsigned lane() { return 0; }
  static unsigned lanes() { return 1; }
  static void meet() {}
  static bool any(bool one) { return one; }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] unsigned size() const { return trial_.ranks; }
  [[nodiscard]] unsigned unit_place(Round round) const {
    return trial_.bug == ExchangeBug::few_places ? 0 : gpu::unit_place_of(round);
  }
  [[nodiscard]] unsigned piece_place(Round round) const {
    return trial_.bug == ExchangeBug::few_places ? round % 2 : gpu::piece_place_of(round);
  }
  // The second flag has the call in it, or the one word's flag where a unit has but one.
  [[nodiscard]] std::uint64_t flag(Round round, bool second) const {
    const bool digests = second == trial_.halves && trial_.bug != ExchangeBug::digest_unchecked;
    return static_cast<std::uint64_t>(round + (digests && trial_.differ ? 100 + rank_ * 100 : 0)) << 32;
  }

  void store_unit(unsigned to, std::uint32_t index, Round round, std::uint64_t data) {
    auto& unit = units_->words[to][rank_][unit_place(round) * trial_.units + index];
    if (trial_.halves && lives()) unit[1]->store(flag(round, true) | data >> 32, std::memory_order_relaxed);
    if (lives()) unit[0]->store(flag(round, false) | (data & 0xFFFFFFFF), std::memory_order_relaxed);
  }
  bool load_unit(unsigned from, std::uint32_t index, Round round, std::uint64_t& data) {
    if (!lives()) return false;
    const auto& unit = units_->words[rank_][from][unit_place(round) * trial_.units + index];
    const std::uint64_t low = unit[0]->load(std::memory_order_relaxed);
    const std::uint64_t high = trial_.halves ? unit[1]->load(std::memory_order_relaxed) : 0;
    data = (trial_.halves ? high << 32 : 0) | (low & 0xFFFFFFFF);
    require(trial_.differ || (low >> 32 <= round && high >> 32 <= round),
            "what came was overwritten before it was read");
    if (trial_.bug == ExchangeBug::any_flag) return low != 0 && (high != 0 || !trial_.halves);
    const bool first = low >> 32 == flag(round, false) >> 32;
    return first && (!trial_.halves || trial_.bug == ExchangeBug::half_a_unit || high >> 32 == flag(round, true) >> 32);
  }
  static void clear_units(Round) {}

  void put(unsigned to, Round round, int value) {
    if (lives()) pieces_->places[to][rank_][piece_place(round)]->set(value);
  }
  int piece(unsigned from, Round round) { return pieces_->places[rank_][from][piece_place(round)]->get(); }
  void release() {
    if (lives()) ModelAtomics::fence(std::memory_order_acq_rel);
  }
  void store_flag(unsigned to, std::uint64_t value) {
    if (lives()) pieces_->flags[to][rank_]->store(value, std::memory_order_relaxed);
  }
  std::uint64_t load_flag(unsigned from) {
    return lives() ? pieces_->flags[rank_][from]->load(std::memory_order_acquire) : 0;
  }

  bool gives_up(unsigned, gpu::Waits) { return is_dead() || ++looks_ >= trial_.looks; }
  void mismatch(unsigned) { require(trial_.differ, "the digest of another round was taken for this one's"); }
  void in_round(unsigned) { looks_ = 0; }
  [[nodiscard]] bool is_dead() const { return static_cast<int>(rank_) == trial_.dies && steps_ >= trial_.steps; }

 private:
  bool lives() {
    if (is_dead()) return false;
    ++steps_;
    return true;
  }
  const Trial trial_;
  const unsigned rank_;
  UnitMemory* const units_;
  PieceMemory* const pieces_;
  unsigned looks_ = 0, steps_ = 0;
};

class LineMachine {
 public:
  LineMachine(const Trial& trial, unsigned rank, LineMemory& lines) : trial_(trial), rank_(rank), lines_(lines) {}

  void store(unsigned to, unsigned channel, gpu::LineRound round, std::uint64_t value) {
    if (lives()) at(to, rank_, channel, round).store(round << 16 | value, std::memory_order_relaxed);
  }
  // False: it gives up.
  bool load(unsigned from, unsigned channel, gpu::LineRound round, std::uint64_t& value) {
    for (unsigned look = 0; look < trial_.looks && lives(); ++look) {
      const std::uint64_t line = at(rank_, from, channel, round).load(std::memory_order_relaxed);
      require(line >> 16 <= round, "what came was overwritten before it was read");
      value = line & 0xFFFF;
      if (line >> 16 == round || (trial_.bug == ExchangeBug::any_flag && line != 0)) return true;
    }
    return false;
  }
  static void in_round(unsigned) {}
  [[nodiscard]] bool is_dead() const { return static_cast<int>(rank_) == trial_.dies && steps_ >= trial_.steps; }

 private:
  UnitWord& at(unsigned owner, unsigned from, unsigned channel, gpu::LineRound round) {
    const unsigned place = trial_.bug == ExchangeBug::few_places ? 0 : gpu::line_place_of(round);
    return *lines_.words[owner][from][place * LineMemory::kChannels + channel];
  }
  bool lives() {
    if (is_dead()) return false;
    ++steps_;
    return true;
  }
  const Trial trial_;
  const unsigned rank_;
  LineMemory& lines_;
  unsigned steps_ = 0;
};

// 64 bits, both halves of which say whose and of which round they are.
std::uint64_t data_of(unsigned rank, Round round) {
  const std::uint64_t value = rank * 16 + round;
  return value << 32 | value;
}
std::uint64_t digest_of(const Trial& trial, unsigned rank) {
  const std::uint64_t value = trial.differ && trial.bug != ExchangeBug::digest_unchecked ? rank + 5 : 7;
  return value << 32;
}

struct ByUnits : Program {
  explicit ByUnits(Trial trial_in) : trial(trial_in), memory(trial) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    Machine machine(trial, rank, &memory, nullptr);
    Round round = 0;
    for (unsigned i = 0; i < trial.rounds; ++i) {
      round = gpu::next_round(round);
      machine.in_round(i + 1);
      const auto all = [](unsigned) { return true; };
      const auto send = [&](unsigned, std::uint32_t) { return data_of(rank, round); };
      const auto take = [&](std::uint32_t, const std::uint64_t(&data)[gpu::kMostRanks]) {
        for (unsigned from = 0; from < trial.ranks; ++from) {
          const std::uint64_t want = trial.halves ? data_of(from, round) : data_of(from, round) & 0xFFFFFFFF;
          if (from != rank) require(data[from] == want, "took something else than was sent in this round");
        }
      };
      const bool good = gpu::exchange_units(
          machine, round, trial.units, true, all, send, [] {}, take);
      require(!good || !trial.differ, "calls that differ ended well");
      if (!good) return;
    }
  }
  const Trial trial;
  UnitMemory memory;
};

struct ByPieces : Program {
  explicit ByPieces(Trial trial_in) : trial(trial_in), memory(trial) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    Machine machine(trial, rank, nullptr, &memory);
    Round round = 0;
    const std::uint64_t digest = digest_of(trial, rank);
    const auto value = [](unsigned of, Round in) { return static_cast<int>(of * 16 + in); };
    const auto send = [&](unsigned, Round to_round) {
      if (trial.bug == ExchangeBug::flag_before_data) gpu::tell_pieces(machine, to_round, digest);
      for (unsigned to = 0; to < trial.ranks; ++to)
        if (to != rank) machine.put(to, to_round, value(rank, to_round));
    };
    const auto take = [&](unsigned, Round from_round) {
      for (unsigned from = 0; from < trial.ranks; ++from)
        if (from != rank)
          require(machine.is_dead() || machine.piece(from, from_round) == value(from, from_round),
                  "took the bytes of another round");
    };
    for (unsigned call = 0; call < trial.calls; ++call) {
      const bool good = gpu::exchange_pieces(machine, round, digest, trial.rounds, trial.ahead, send, take);
      require(!good || !trial.differ, "calls that differ ended well");
      if (!good && trial.bug == ExchangeBug::gives_up_well && !machine.is_dead()) take(0, round);
      if (!good) return;
    }
  }
  const Trial trial;
  PieceMemory memory;
};

// The channels of a call are warps; the model runs one after the other, as they share nothing. With `trial.rounds` 2 a
// call in two rounds by one channel is followed by one in one round by two, and so on.
struct ByLines : Program {
  explicit ByLines(Trial trial_in) : trial(trial_in), memory(trial) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    LineMachine machine(trial, rank, memory);
    gpu::LineRound ended = 0;
    for (unsigned call = 0; call < trial.calls; ++call) {
      const std::uint32_t rounds = call % 2 == 0 ? trial.rounds : 1;
      const unsigned channels = call % 2 == 0 ? 1 : LineMemory::kChannels;
      for (unsigned channel = 0; channel < channels; ++channel) {
        const auto value = [&](unsigned of, gpu::LineRound in) { return (of * 4 + channel) * 16 + in; };
        const auto sends = [&](std::uint32_t nth) {  // rank 1 has bytes in the first round only
          return trial.bug != ExchangeBug::nothing_sent || rank == 0 || nth == 0;
        };
        const auto send = [&](std::uint32_t nth, gpu::LineRound round) {
          for (unsigned to = 0; to < trial.ranks; ++to)
            if (to != rank && sends(nth)) machine.store(to, channel, round, value(rank, round));
        };
        const auto take = [&](std::uint32_t nth, gpu::LineRound round) {
          for (unsigned from = 0; from < trial.ranks; ++from) {
            if (from == rank || (trial.bug == ExchangeBug::nothing_sent && from != 0 && nth != 0)) continue;
            std::uint64_t came = 0;
            if (!machine.load(from, channel, round, came)) return false;
            require(came == value(from, round), "took something else than was sent in this round");
          }
          return true;
        };
        const gpu::LineRound from = ended + (trial.bug == ExchangeBug::same_place_again && call != 0 ? 1 : 0);
        if (!gpu::exchange_lines(machine, from, rounds, send, take)) return;
      }
      ended += rounds + (trial.bug == ExchangeBug::same_place_again && call != 0 ? 1 : 0);
    }
  }
  const Trial trial;
  LineMemory memory;
};

// Each rank combines its part and sends the sum in the next round, line by line, while others of its lines have not
// come. Here the channels are the rows of one warp.
struct ByLinesInTwoSteps : Program {
  explicit ByLinesInTwoSteps(Trial trial_in) : trial(trial_in), memory(trial) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    LineMachine machine(trial, rank, memory);
    const auto value = [](unsigned of, unsigned row, gpu::LineRound in) { return (of * 4 + row) * 16 + in; };
    const auto send_row = [&](unsigned row, gpu::LineRound round) {
      for (unsigned to = 0; to < trial.ranks; ++to)
        if (to != rank) machine.store(to, row, round, value(rank, row, round));
    };
    const bool early = trial.bug == ExchangeBug::sums_early;
    const auto send = [&](std::uint32_t nth, gpu::LineRound round) {
      for (unsigned row = 0; nth % 2 == 0 && row < LineMemory::kChannels; ++row) {
        send_row(row, round);
        if (early) send_row(row, round + 1);
      }
    };
    const auto take = [&](std::uint32_t nth, gpu::LineRound round) {
      for (unsigned row = 0; row < LineMemory::kChannels; ++row) {
        for (unsigned from = 0; from < trial.ranks; ++from) {
          std::uint64_t came = 0;
          if (from == rank) continue;
          if (!machine.load(from, row, round, came)) return false;
          require(came == value(from, row, round), "took something else than was sent in this round");
        }
        if (nth % 2 == 0 && !early) send_row(row, round + 1);
      }
      return true;
    };
    (void)gpu::exchange_lines(machine, 0, 2 * trial.rounds, send, take);
  }
  const Trial trial;
  LineMemory memory;
};

Options options_of(const Trial& trial) {
  return {.threads = trial.ranks, .stale_reads = 1};
}
template <class P>
void expect_right(const char* name, const Trial& trial) {
  EXPECT_EQ(explore(name, options_of(trial), maker<P>(trial)).failure, "");
}
template <class P>
void expect_found(const char* name, Trial trial, ExchangeBug bug) {
  trial.bug = bug;
  expect_caught(options_of(trial), swapped(name), maker<P>(trial));
}

// The third round uses the places of the first.
constexpr Trial kPatient{.looks = 2};

TEST(GpuExchangeModel, TwoRanksTakeTheUnitsOfTheirRound) {
  expect_right<ByUnits>("units: 2 ranks", {});
}
TEST(GpuExchangeModel, TwoRanksThatLookTwiceToo) {
  expect_right<ByUnits>("units: 2 ranks, two looks", kPatient);
}
TEST(GpuExchangeModel, SeveralUnitsToo) {
  expect_right<ByUnits>("units: 2 ranks, two units", {.rounds = 2, .units = 2, .halves = false});
}
TEST(GpuExchangeModel, ThreeRanksTakeTheUnitsOfTheirRound) {
  expect_right<ByUnits>("units: 3 ranks", {.ranks = 3, .halves = false});
}
TEST(GpuExchangeModel, TwoRanksTakeThePiecesOfTheirRound) {
  expect_right<ByPieces>("pieces: 2 ranks, two looks", {.rounds = 4, .looks = 2});
}
TEST(GpuExchangeModel, TwoRanksThatSendAheadToo) {
  expect_right<ByPieces>("pieces: 2 ranks, two ahead", {.rounds = 5, .ahead = 2});
}
// The next call sends ahead at once, while another rank may still be in the last one.
TEST(GpuExchangeModel, CallsOneAfterTheOtherToo) {
  expect_right<ByPieces>("pieces: 2 ranks, 3 calls of 2 rounds", {.rounds = 2, .ahead = 2, .calls = 3});
}
TEST(GpuExchangeModel, ThreeRanksTakeThePiecesOfTheirRound) {
  expect_right<ByPieces>("pieces: 3 ranks, 2 rounds", {.ranks = 3, .rounds = 2});
}

TEST(GpuExchangeModel, TwoRanksTakeTheLinesOfTheirRound) {
  expect_right<ByLines>("lines: 2 ranks, 4 rounds", {.rounds = 4, .looks = 2});
}
TEST(GpuExchangeModel, CallsByOtherChannelsToo) {
  expect_right<ByLines>("lines: 2 ranks, calls of 2, 1 and 2 rounds", {.rounds = 2, .calls = 3, .looks = 2});
}
TEST(GpuExchangeModel, ThreeRanksTakeTheLinesOfTheirRound) {
  expect_right<ByLines>("lines: 3 ranks, 2 rounds", {.ranks = 3, .rounds = 2});
}
TEST(GpuExchangeModel, RanksThatCombineAPartEachToo) {
  expect_right<ByLinesInTwoSteps>("lines in two steps: 2 ranks, twice", {.rounds = 2});
  expect_right<ByLinesInTwoSteps>("lines in two steps: 3 ranks", {.ranks = 3, .rounds = 1});
  if (at_length())  // minutes
    expect_right<ByLinesInTwoSteps>("lines in two steps: 2 ranks, twice, two looks", {.rounds = 2, .looks = 2});
}

TEST(GpuExchangeModel, ARankThatDiesAfterAnyStepHarmsNoOther) {
  for (unsigned steps = 0; steps < 12; ++steps) {
    expect_right<ByUnits>("units: 1 of 2 dies", {.dies = 1, .steps = steps});
    expect_right<ByPieces>("pieces: 1 of 2 dies", {.looks = 2, .dies = 1, .steps = steps});
    expect_right<ByLines>("lines: 1 of 2 dies", {.looks = 2, .dies = 1, .steps = steps});
    expect_right<ByLinesInTwoSteps>("lines in two steps: 1 of 2 dies",
                                    {.rounds = 1, .looks = 2, .dies = 1, .steps = steps});
  }
}

TEST(GpuExchangeModel, CallsThatDifferEndWellNowhere) {
  expect_right<ByUnits>("units: 2 ranks call different things", {.rounds = 2, .differ = true});
  expect_right<ByPieces>("pieces: 2 ranks call different things", {.rounds = 2, .looks = 2, .differ = true});
}

TEST(GpuExchangeModel, EachBugIsCaught) {
  expect_found<ByUnits>("units: the flag's round is not looked at", {}, ExchangeBug::any_flag);
  expect_found<ByUnits>("units: a place is used again one round early", {}, ExchangeBug::few_places);
  expect_found<ByUnits>("units: one of a unit's two flags is looked at", {}, ExchangeBug::half_a_unit);
  expect_found<ByUnits>("units: the digest is not the call's", {.differ = true}, ExchangeBug::digest_unchecked);
  expect_found<ByLines>("lines: the flag's round is not looked at", {}, ExchangeBug::any_flag);
  expect_found<ByLines>("lines: a place is used again one round early", {.looks = 2}, ExchangeBug::few_places);
  expect_found<ByLines>("lines: a call begins with the last one's place", {.rounds = 1, .calls = 2, .looks = 2},
                        ExchangeBug::same_place_again);
  expect_found<ByLines>("lines: who has no bytes sends no line", {.rounds = 4, .looks = 2}, ExchangeBug::nothing_sent);
  expect_found<ByLinesInTwoSteps>("lines in two steps: sums before the parts have come", {.rounds = 2},
                                  ExchangeBug::sums_early);
  expect_found<ByPieces>("pieces: the flag before the data", {}, ExchangeBug::flag_before_data);
  expect_found<ByPieces>("pieces: places are used again early", {.rounds = 4, .ahead = 2}, ExchangeBug::few_places);
  expect_found<ByPieces>("pieces: who gives up goes on", {}, ExchangeBug::gives_up_well);
  expect_found<ByPieces>("pieces: the digest is not the call's", {.differ = true}, ExchangeBug::digest_unchecked);
}

TEST(GpuExchangeModel, NeedsTheFenceAndTheAcquire) {
  const Trial trial{.looks = 2};
  expect_caught(options_of(trial), {"pieces: no fence before the flags", fences(std::memory_order_acq_rel), relax},
                maker<ByPieces>(trial));
  const auto acquires = [](const Operation& op) {
    return op.kind == Kind::load && op.order == std::memory_order_acquire;
  };
  expect_caught(options_of(trial), {"pieces: flags read without acquire", acquires, relax}, maker<ByPieces>(trial));
}

}  // namespace
}  // namespace fairway::model

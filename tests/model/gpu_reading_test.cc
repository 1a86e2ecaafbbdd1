#include <optional>

#include "collectives/gpu/device/exchange.h"
#include "model/mutants.h"
#include "support/at_length.h"

// The protocol by which ranks' kernels read each other's memory where it is: every interleaving of a call or two, with
// ranks that come late (whoever waits may give up at any look), and ranks that die after any of their steps.
namespace fairway::model {
namespace {

namespace gpu = collectives::gpu;

constexpr unsigned kReaders = 3;  // at most

// The bugs to plant.
enum class ReadBug {
  none,
  any_flag,
  digest_unchecked,
  ends_early,     // a call ends without the last meeting
  written_early,  // the sums are read without the meeting behind them
};

struct ReadTrial {
  unsigned ranks = 2;
  unsigned calls = 1;  // one after the other
  unsigned looks = 1;  // before a rank gives up
  int dies = -1;       // this rank, after so many steps:
  unsigned steps = 0;
  bool differ = false;  // the ranks call different things
  ReadBug bug = ReadBug::none;
};

using PhaseWord = ModelAtomics::Atomic<std::uint64_t>;

// What is read where it is: each rank's input and sum, and the words of the phases by owner and sender.
struct ReadMemory {
  explicit ReadMemory(const ReadTrial& trial) {
    for (unsigned owner = 0; owner < trial.ranks; ++owner) {
      inputs[owner].emplace();
      sums[owner].emplace();
      for (unsigned from = 0; from < trial.ranks; ++from)
        if (from != owner) words[owner][from].emplace();
    }
  }
  std::optional<PhaseWord> words[kReaders][kReaders];
  std::optional<Tracked> inputs[kReaders], sums[kReaders];
};

class ReadMachine {
 public:
  ReadMachine(const ReadTrial& trial, unsigned rank, ReadMemory& memory)
      : trial_(trial), rank_(rank), memory_(memory) {}

  static unsigned lane() { return 0; }
  static unsigned lanes() { return 1; }
  static void meet() {}
  static bool any(bool one) { return one; }
  [[nodiscard]] unsigned rank() const { return rank_; }
  [[nodiscard]] unsigned size() const { return trial_.ranks; }
  void release() {
    if (lives()) ModelAtomics::fence(std::memory_order_acq_rel);
  }
  void tell_phase(unsigned to, std::uint64_t word) {
    if (lives()) memory_.words[to][rank_]->store(word, std::memory_order_relaxed);
  }
  std::uint64_t load_phase(unsigned from) {
    const std::uint64_t word = lives() ? memory_.words[rank_][from]->load(std::memory_order_acquire) : 0;
    return trial_.bug == ReadBug::any_flag && word != 0 ? ~std::uint64_t{0} : word;
  }
  bool gives_up(unsigned, gpu::Waits) { return is_dead() || ++looks_ >= trial_.looks; }
  void mismatch(unsigned) { require(trial_.differ, "the digest of another phase was taken for this one's"); }
  // Meets the others. False: it has failed.
  bool meet_others(gpu::PhaseRound phase, std::uint64_t digest) {
    looks_ = 0;
    return gpu::meet_in_phase(*this, phase, digest) && !is_dead();
  }
  bool lives() {
    if (is_dead()) return false;
    ++steps_;
    return true;
  }
  [[nodiscard]] bool is_dead() const { return static_cast<int>(rank_) == trial_.dies && steps_ >= trial_.steps; }

 private:
  const ReadTrial trial_;
  const unsigned rank_;
  ReadMemory& memory_;
  unsigned looks_ = 0, steps_ = 0;
};

// Calls one after the other: each rank writes its input, all read it, and each writes what it has read into its sum,
// which all read then. Behind the call a rank may write its memory again.
struct ByReading : Program {
  explicit ByReading(ReadTrial trial_in) : trial(trial_in), memory(trial) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    ReadMachine machine(trial, rank, memory);
    const std::uint64_t digest = trial.differ && trial.bug != ReadBug::digest_unchecked
                                     ? static_cast<std::uint64_t>(rank + 5) << 44
                                     : std::uint64_t{7} << 44;
    gpu::PhaseRound phase = 0;
    const auto value = [](unsigned of, unsigned call) { return static_cast<int>(of * 16 + call + 1); };
    const auto read = [&](std::optional<Tracked>(&what)[kReaders], unsigned call, int more) {
      for (unsigned from = 0; from < trial.ranks; ++from)
        if (from != rank && machine.lives())
          require(what[from]->get() == value(from, call) + more, "read what was not written for this call");
    };
    for (unsigned call = 0; call < trial.calls; ++call) {
      if (machine.lives()) memory.inputs[rank]->set(value(rank, call));
      if (!machine.meet_others(++phase, digest)) return;
      require(!trial.differ, "calls that differ went on");
      read(memory.inputs, call, 0);
      if (machine.lives()) memory.sums[rank]->set(value(rank, call) + 100);
      if (trial.bug != ReadBug::written_early && !machine.meet_others(++phase, digest)) return;
      read(memory.sums, call, 100);
      if (trial.bug != ReadBug::ends_early && !machine.meet_others(++phase, digest)) return;
      if (machine.lives()) memory.sums[rank]->set(0);  // the caller, who has it back
    }
  }
  const ReadTrial trial;
  ReadMemory memory;
};

Options read_options(const ReadTrial& trial) {
  return {.threads = trial.ranks, .stale_reads = 1};
}
void expect_right_reading(const char* name, const ReadTrial& trial) {
  EXPECT_EQ(explore(name, read_options(trial), maker<ByReading>(trial)).failure, "");
}
void expect_found_reading(const char* name, ReadTrial trial, ReadBug bug) {
  trial.bug = bug;
  expect_caught(read_options(trial), swapped(name), maker<ByReading>(trial));
}

TEST(GpuReadingModel, RanksReadWhatTheOthersHave) {
  expect_right_reading("reading: 2 ranks, 2 calls", {.calls = 2});
  expect_right_reading("reading: 2 ranks, two looks", {.looks = 2});
  if (at_length())  // half a minute
    expect_right_reading("reading: 3 ranks", {.ranks = 3});
  expect_right_reading("reading: 2 ranks call different things", {.looks = 2, .differ = true});
}

TEST(GpuReadingModel, ARankThatDiesAfterAnyStepHarmsNoOther) {
  for (unsigned steps = 0; steps < 12; ++steps)
    expect_right_reading("reading: 1 of 2 dies", {.dies = 1, .steps = steps});
}

TEST(GpuReadingModel, EachBugIsCaught) {
  expect_found_reading("reading: the word's phase is not looked at", {.calls = 2}, ReadBug::any_flag);
  expect_found_reading("reading: a call ends without the last meeting", {.calls = 2}, ReadBug::ends_early);
  expect_found_reading("reading: sums without a meeting behind them", {.looks = 2}, ReadBug::written_early);
  expect_found_reading("reading: the digest is not the call's", {.looks = 2, .differ = true},
                       ReadBug::digest_unchecked);
}

TEST(GpuReadingModel, NeedsTheFenceAndTheAcquire) {
  const ReadTrial trial{.looks = 2};
  const auto acquires = [](const Operation& op) {
    return op.kind == Kind::load && op.order == std::memory_order_acquire;
  };
  expect_caught(read_options(trial), {"reading: no fence before the words", fences(std::memory_order_acq_rel), relax},
                maker<ByReading>(trial));
  expect_caught(read_options(trial), {"reading: words read without acquire", acquires, relax}, maker<ByReading>(trial));
}

}  // namespace
}  // namespace fairway::model

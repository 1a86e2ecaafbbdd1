#include <array>
#include <optional>

#include "collectives/gpu/device/exchange.h"
#include "model/mutants.h"

// How messages travel between two ranks' kernels, and how ranks tell each other the sizes of their blocks: every
// interleaving, with ranks that come late (whoever waits may give up at any look), or die after any of their steps.
namespace fairway::model {
namespace {

namespace gpu = collectives::gpu;
using Word = ModelAtomics::Atomic<std::uint64_t>;

enum class MessageBug {
  none,
  any_flag,      // the flag's round is not looked at
  one_place,     // a place is used again one round early
  told_early,    // the receiver says that it has taken what it has not
  sent_unheard,  // who sends does not wait for the receiver
  digest_unchecked,
};

struct MessageTrial {
  unsigned rounds = 2;
  unsigned calls = 2;  // by turns of so many rounds of one channel, and one round of two
  unsigned looks = 1;
  int dies = -1;  // rank 0, which sends, or 1; after so many steps:
  unsigned steps = 0;
  bool differ = false;  // the two name different sizes
  MessageBug bug = MessageBug::none;
};

// Of the receiver by place and channel, a line each; and of the sender a word for each channel.
struct MessageMemory {
  static constexpr unsigned kChannels = 2;
  MessageMemory() {
    for (auto& each : lines) each.emplace();
    for (auto& each : heard) each.emplace();
  }
  std::array<std::optional<Word>, 2 * kChannels> lines;
  std::array<std::optional<Word>, kChannels> heard;
};

class MessageMachine {
 public:
  MessageMachine(const MessageTrial& trial, unsigned rank, MessageMemory& memory)
      : trial_(trial), rank_(rank), memory_(memory) {}

  void in_round(unsigned) { looks_ = 0; }
  void use(unsigned channel) { channel_ = channel; }
  std::uint64_t heard() {
    if (!lives()) return 0;
    const std::uint64_t word = memory_.heard[channel_]->load(std::memory_order_relaxed);
    return trial_.bug == MessageBug::sent_unheard ? ~std::uint64_t{0} : word;
  }
  void tell(std::uint64_t word) {
    if (lives()) memory_.heard[channel_]->store(word, std::memory_order_relaxed);
    if (trial_.bug == MessageBug::told_early && lives())
      memory_.heard[channel_]->store(word + (1 << 16), std::memory_order_relaxed);
  }
  bool waits_no_longer() { return is_dead() || ++looks_ >= trial_.looks; }
  bool differs() {
    require(trial_.differ, "the digest of another round was taken for this one's");
    return false;
  }
  void put(gpu::LineRound round, std::uint64_t value) {
    if (lives()) line(round).store(round << 16 | value, std::memory_order_relaxed);
  }
  bool get(gpu::LineRound round, std::uint64_t& value) {
    for (unsigned look = 0; look < trial_.looks && lives(); ++look) {
      const std::uint64_t word = line(round).load(std::memory_order_relaxed);
      require(word >> 16 <= round, "what came was overwritten before it was read");
      value = word & 0xFFFF;
      if (word >> 16 == round || (trial_.bug == MessageBug::any_flag && word != 0)) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_dead() const { return static_cast<int>(rank_) == trial_.dies && steps_ >= trial_.steps; }

 private:
  Word& line(gpu::LineRound round) {
    const unsigned place = trial_.bug == MessageBug::one_place ? 0 : gpu::line_place_of(round);
    return *memory_.lines[place * MessageMemory::kChannels + channel_];
  }
  bool lives() {
    if (is_dead()) return false;
    ++steps_;
    return true;
  }
  const MessageTrial trial_;
  const unsigned rank_;
  MessageMemory& memory_;
  unsigned channel_ = 0, looks_ = 0, steps_ = 0;
};

struct Messages : Program {
  explicit Messages(MessageTrial trial_in) : trial(trial_in) {}
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    MessageMachine machine(trial, rank, memory);
    const std::uint64_t checked = trial.bug == MessageBug::digest_unchecked ? 0 : rank;
    const std::uint64_t digest = (trial.differ ? checked + 5 : 7) << 48;
    gpu::LineRound ended = 0;
    for (unsigned call = 0; call < trial.calls; ++call) {
      const std::uint32_t rounds = call % 2 == 0 ? trial.rounds : 1;
      for (unsigned channel = 0; channel < (call % 2 == 0 ? 1 : MessageMemory::kChannels); ++channel) {
        machine.use(channel);
        const auto value = [&](gpu::LineRound in) { return channel * 64 + in; };
        const auto put = [&](std::uint32_t, gpu::LineRound round) { machine.put(round, value(round)); };
        const auto get = [&](std::uint32_t, gpu::LineRound round) {
          std::uint64_t came = 0;
          if (trial.differ || !machine.get(round, came)) return false;
          require(came == value(round), "took something else than was sent in this round");
          return true;
        };
        const bool good = rank == 0 ? gpu::send_in_rounds(machine, ended, digest, rounds, put)
                                    : gpu::receive_in_rounds(machine, ended, digest, rounds, get);
        require(!good || !trial.differ, "calls that differ ended well");
        if (!good) return;
      }
      ended += rounds;
    }
  }
  const MessageTrial trial;
  MessageMemory memory;
};

// Ranks tell each other what they have, in turns of calls, and go as many rounds as the largest needs.
enum class SizeBug { none, one_turn, call_unchecked, own_rounds };
struct SizeTrial {
  unsigned ranks = 2;
  unsigned calls = 3;
  unsigned looks = 1;
  SizeBug bug = SizeBug::none;
};

struct Sizes : Program {
  explicit Sizes(SizeTrial trial_in) : trial(trial_in) {
    for (unsigned owner = 0; owner < trial.ranks; ++owner)
      for (unsigned from = 0; from < trial.ranks; ++from)
        for (unsigned i = 0; i < 2 && from != owner; ++i) {
          words[owner][from][i].emplace();
          lines[owner][from][i].emplace();
        }
  }
  static std::uint32_t size_of(unsigned rank, std::uint32_t call) { return rank == 0 && call == 3 ? 2 : 1; }
  void run(unsigned thread) override {
    const unsigned rank = thread - 1;
    gpu::LineRound ended = 0;
    for (std::uint32_t call = 1; call <= trial.calls; ++call) {
      const unsigned turn = trial.bug == SizeBug::one_turn ? 0 : call % 2;
      for (unsigned to = 0; to < trial.ranks; ++to)
        if (to != rank)
          words[to][rank][turn]->store(static_cast<std::uint64_t>(call) << 32 | size_of(rank, call),
                                       std::memory_order_relaxed);
      const auto send = [&](std::uint32_t, gpu::LineRound round) {
        for (unsigned to = 0; to < trial.ranks; ++to)
          if (to != rank)
            lines[to][rank][gpu::line_place_of(round)]->store(round << 16 | call, std::memory_order_relaxed);
      };
      const auto take = [&](std::uint32_t, gpu::LineRound round) {
        for (unsigned from = 0; from < trial.ranks; ++from) {
          if (from == rank) continue;
          std::uint64_t line = 0;
          for (unsigned look = 0; look < trial.looks && line >> 16 != round; ++look) {
            line = lines[rank][from][gpu::line_place_of(round)]->load(std::memory_order_relaxed);
            require(line >> 16 <= round, "what came was overwritten before it was read");
          }
          if (line >> 16 != round) return false;
          require((line & 0xFFFF) == call, "took another call's bytes");
        }
        return true;
      };
      send(0, ended + 1);
      std::uint32_t most = size_of(rank, call), all = most;
      for (unsigned from = 0; from < trial.ranks; ++from) {
        if (from == rank) continue;
        std::uint64_t word = 0;
        for (unsigned look = 0; look < trial.looks && word >> 32 != call; ++look) {
          word = words[rank][from][turn]->load(std::memory_order_relaxed);
          require(word >> 32 <= call, "a size was overwritten before it was read");
          if (trial.bug == SizeBug::call_unchecked && word != 0) break;
        }
        if (word >> 32 != call && (trial.bug != SizeBug::call_unchecked || word == 0)) return;
        all = std::max(all, static_cast<std::uint32_t>(word));
      }
      most = trial.bug == SizeBug::own_rounds ? most : all;
      std::uint32_t wanted = 0;
      for (unsigned of = 0; of < trial.ranks; ++of) wanted = std::max(wanted, size_of(of, call));
      require(trial.bug == SizeBug::own_rounds || most == wanted, "another call's sizes were taken for this one's");
      if (!gpu::exchange_begun_lines(machine, ended, most, send, take)) return;
      ended += most;
    }
  }
  struct {
    void in_round(unsigned) {}
  } machine;
  const SizeTrial trial;
  std::optional<Word> words[3][3][2], lines[3][3][2];
};

Options options_of(const MessageTrial&) {
  return {.threads = 2, .stale_reads = 1};
}
Options options_of(const SizeTrial& trial) {
  return {.threads = trial.ranks, .stale_reads = 1};
}
template <class P, class Trial>
void expect_right(const char* name, const Trial& trial) {
  EXPECT_EQ(explore(name, options_of(trial), maker<P>(trial)).failure, "");
}
template <class P, class Trial, class Bug>
void expect_found(const char* name, Trial trial, Bug bug) {
  trial.bug = bug;
  expect_caught(options_of(trial), swapped(name), maker<P>(trial));
}

TEST(GpuMessagesModel, TheReceiverTakesWhatWasSentInItsRound) {
  expect_right<Messages>("messages: 3 rounds, two looks", MessageTrial{.rounds = 3, .calls = 1, .looks = 2});
  expect_right<Messages>("messages: calls of 2, 1 and 2 rounds", MessageTrial{.rounds = 2, .calls = 3});
}
TEST(GpuMessagesModel, ARankThatDiesAfterAnyStepHarmsNoOther) {
  for (unsigned steps = 0; steps < 10; ++steps)
    for (const int dies : {0, 1})
      expect_right<Messages>("messages: one dies", MessageTrial{.calls = 3, .looks = 2, .dies = dies, .steps = steps});
}
TEST(GpuMessagesModel, SizesThatDifferEndWellNowhere) {
  expect_right<Messages>("messages: sizes differ", MessageTrial{.looks = 2, .differ = true});
}
TEST(GpuMessagesModel, EachBugIsCaught) {
  const MessageTrial patient{.rounds = 3, .calls = 3, .looks = 2};
  expect_found<Messages>("messages: the flag's round is not looked at", patient, MessageBug::any_flag);
  expect_found<Messages>("messages: a place is used again one round early", patient, MessageBug::one_place);
  expect_found<Messages>("messages: told before it is taken", patient, MessageBug::told_early);
  expect_found<Messages>("messages: sent without hearing", patient, MessageBug::sent_unheard);
  expect_found<Messages>("messages: the digest is not the call's",
                         MessageTrial{.rounds = 1, .calls = 1, .differ = true}, MessageBug::digest_unchecked);
}

TEST(GpuSizesModel, AllRanksGoAsManyRoundsAsTheLargestNeeds) {
  expect_right<Sizes>("sizes: 2 ranks, 4 calls", SizeTrial{.calls = 4});
  expect_right<Sizes>("sizes: 2 ranks, 2 calls, two looks", SizeTrial{.calls = 2, .looks = 2});
  expect_right<Sizes>("sizes: 3 ranks", SizeTrial{.ranks = 3, .calls = 1});
}
TEST(GpuSizesModel, EachBugIsCaught) {
  expect_found<Sizes>("sizes: the words of two calls share a place", SizeTrial{.calls = 2}, SizeBug::one_turn);
  expect_found<Sizes>("sizes: the call of a word is not looked at", SizeTrial{.calls = 4}, SizeBug::call_unchecked);
  expect_found<Sizes>("sizes: each goes as many rounds as it needs itself", SizeTrial{.calls = 4}, SizeBug::own_rounds);
}

}  // namespace
}  // namespace fairway::model

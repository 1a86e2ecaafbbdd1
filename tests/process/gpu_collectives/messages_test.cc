#include <csignal>
#include <thread>

#include "fairway/progress.h"

#include "process/gpu_collectives/gpu_rank.h"

// Messages between two ranks on streams.
namespace fairway {
namespace {

using namespace std::chrono_literals;

std::byte value(int from, int to, std::size_t nth, std::size_t at) {
  return static_cast<std::byte>(from * 31 + to * 7 + static_cast<int>(nth) * 5 + static_cast<int>(at * 3 + at / 256));
}

// The messages of one rank in a group, and their memory.
class Letters {
 public:
  explicit Letters(GpuRank& rank) : rank_(rank) {}
  // `nth`: which of those between the two in that direction; `off`: bytes by which it is out of alignment.
  void send(int to, std::size_t bytes, std::size_t nth = 0, std::size_t off = 0) {
    std::byte* const place = rank_.memory(bytes + off) + off;
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i) all[i] = value(rank_.group.rank(), to, nth, i);
    rank_.fill(place, all);
    group.push_back({place, bytes, to, false});
    nth_.push_back(nth);
  }
  void receive(int from, std::size_t bytes, std::size_t nth = 0, std::size_t off = 0) {
    std::byte* const place = rank_.memory(bytes + off + 16) + off;
    rank_.fill(place, std::vector<std::byte>(bytes + 16, std::byte{0x77}));
    group.push_back({place, bytes, from, true});
    nth_.push_back(nth);
  }
  bool enqueue(GpuStream stream, std::optional<Timeout> timeout = {}) {
    return rank_.expect(rank_.group.stream_messages(group, stream, timeout), "messages");
  }
  bool is_right() {
    for (std::size_t m = 0; m < group.size(); ++m) {
      const StreamMessage& one = group[m];
      if (!one.receives) continue;
      const auto got = rank_.read(static_cast<std::byte*>(one.data), one.size_bytes + 16);
      for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i] != (i < one.size_bytes ? value(one.peer, rank_.group.rank(), nth_[m], i) : std::byte{0x77}))
          return rank_.fail("byte " + std::to_string(i) + " of " + std::to_string(one.size_bytes) + " from rank " +
                            std::to_string(one.peer));
    }
    return true;
  }
  std::vector<StreamMessage> group;

 private:
  GpuRank& rank_;
  std::vector<std::size_t> nth_;
};

bool ends_well(GpuRank& rank, GpuStream stream) {
  if (!rank.synchronize(stream)) return rank.fail("the context is broken");
  return rank.expect(rank.group.stream_status(), "afterwards");
}

struct GpuMessages : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuMessages, testing::Values(2, 3, 7, 8));

// Around a ring, all at once, of every size. Each rank sends before it receives, or the other way round.
void go_around(GpuRank& rank) {
  const int size = rank.group.size(), me = rank.group.rank(), next = (me + 1) % size, last = (me + size - 1) % size;
  const GpuStream stream = rank.stream();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{480}, std::size_t{5003},
                                  std::size_t{1} << 18, (std::size_t{3} << 20) + 5})
    for (const std::size_t off : {std::size_t{0}, std::size_t{4}, std::size_t{1}}) {
      Letters letters(rank);
      if (me % 2 == 0) letters.send(next, bytes, 0, off);
      letters.receive(last, bytes, 0, off);
      if (me % 2 != 0) letters.send(next, bytes, 0, off);
      if (!letters.enqueue(stream) || !ends_well(rank, stream) || !letters.is_right()) return;
    }
}
TEST_P(GpuMessages, GoAroundARing) {
  run_gpu_ranks(GetParam(), 10min, go_around);
}
TEST_P(GpuMessages, GoAroundARingWithoutNvlink) {
  ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1);
  run_gpu_ranks(GetParam(), 10min, go_around);
  ::unsetenv("FAIRWAY_STANDIN_NO_NVLINK");
}

// From each to each, three of different sizes in one group: more than one kernel takes.
TEST_P(GpuMessages, BetweenAllAtOnceAndSeveralOfEach) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    Letters letters(rank);
    for (std::size_t nth = 0; nth < 3; ++nth)
      for (int other = 0; other < rank.group.size(); ++other) {
        if (other == rank.group.rank()) continue;
        const std::size_t bytes = 1000 * nth + static_cast<std::size_t>(other + rank.group.rank());
        letters.send(other, bytes, nth);
        letters.receive(other, bytes, nth);
      }
    for (int i = 0; i < 3; ++i)
      if (!letters.enqueue(stream)) return;
    if (ends_well(rank, stream)) (void)letters.is_right();
  });
}

// All messages of a ring are in one kernel. Rank 1 comes only once rank 3, which shares no message with it, has ended:
// of two kernels in a row rank 0 would wait in the first for rank 1, and rank 3 for the second.
TEST(GpuMessage, ThoseOfARingDoNotWaitForEachOther) {
  run_gpu_ranks(4, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    const int me = rank.group.rank();
    char go[3] = {};
    if (me == 1 && !rank.expect(rank.group.receive(go, 2, 3), "hearing of rank 3")) return;
    Letters letters(rank);
    letters.send((me + 1) % 4, 3 << 20);  // more than its place holds
    letters.receive((me + 3) % 4, 3 << 20);
    if (!letters.enqueue(stream, 1min) || !ends_well(rank, stream) || !letters.is_right()) return;
    if (me == 3) (void)rank.expect(rank.group.send("go", 2, 1), "telling rank 1");
  });
}

// Two ranks exchange, one call by one and in other groups, while the third does something else with one of them.
TEST(GpuMessage, OnlyTheTwoTakePart) {
  run_gpu_ranks(3, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream(), other = rank.stream();
    const int me = rank.group.rank();
    for (int i = 0; i < 5; ++i) {
      Letters first(rank), second(rank), both(rank), third(rank);
      if (me == 0) {
        first.send(1, 40'000);
        second.receive(1, 30'000);
        if (!first.enqueue(stream) || !second.enqueue(stream)) return;
      } else if (me == 1) {
        both.receive(0, 40'000), both.send(0, 30'000);
        third.send(2, 7);
        if (!third.enqueue(stream) || !both.enqueue(stream)) return;
      } else {
        third.receive(1, 7);
        if (!third.enqueue(other)) return;
      }
      if (!ends_well(rank, me == 2 ? other : stream) || !first.is_right() || !second.is_right()) return;
      if (!both.is_right() || !third.is_right()) return;
    }
    Collective call{.kind = CollectiveKind::barrier};
    if (rank.expect(rank.group.stream_run(call, stream), "all of them")) (void)ends_well(rank, stream);
  });
}

TEST(GpuMessage, StreamsAndGraphsHavePlacesOfTheirOwn) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const GpuStream a = rank.stream(), b = rank.stream();
    const int other = 1 - rank.group.rank();
    Letters first(rank), second(rank), third(rank);
    for (Letters* const one : {&first, &second, &third}) {
      const std::size_t bytes = one == &first ? 100'000 : one == &second ? 12 : 3000;
      one->send(other, bytes), one->receive(other, bytes);
    }
    Graphs graphs(rank);
    const auto graph = graphs.capture(a, [&] { return first.enqueue(a) && second.enqueue(a); });
    if (graph == nullptr) return (void)rank.fail("no graph");
    for (int i = 0; i < 9; ++i) {
      // One rank goes ahead on one stream, the other on the other.
      const bool turned = rank.group.rank() == 1;
      for (const bool one : {turned, !turned})
        if (one ? !graphs.launch(graph, a) : !third.enqueue(b)) return (void)rank.fail("a launch");
    }
    if (!ends_well(rank, a) || !ends_well(rank, b)) return;
    if (!first.is_right() || !second.is_right() || !third.is_right()) return;
  });
}

TEST_P(GpuMessages, GoOnAsManyStreamsAsOneLikes) {
  run_gpu_ranks(GetParam(), 10min, [](GpuRank& rank) {
    const int size = rank.group.size(), me = rank.group.rank();
    std::vector<std::unique_ptr<Letters>> all;
    std::vector<GpuStream> streams;
    for (int i = 0; i < 25; ++i) {  // none waits for another but by a place that both have
      const std::size_t bytes = i % 8 == 7 ? 300'000 : 40 + static_cast<std::size_t>(i);
      streams.push_back(rank.stream());
      all.push_back(std::make_unique<Letters>(rank));
      all.back()->send((me + 1) % size, bytes, static_cast<std::size_t>(i));
      all.back()->receive((me + size - 1) % size, bytes, static_cast<std::size_t>(i));
      for (int k = 0; k < 3; ++k)
        if (!all.back()->enqueue(streams.back())) return;
      if (i % 3 == 0 && !all.front()->enqueue(streams.front())) return;  // one that is used all the time
      if (i == 12 && !all[2]->enqueue(streams[2])) return;               // and one that comes back
    }
    for (std::size_t i = 0; i < streams.size(); ++i)
      if (!ends_well(rank, streams[i]) || !all[i]->is_right()) return;
  });
}

// Its messages are behind all that the other had in flight, on this rank alone.
TEST(GpuMessage, WhoTakesOverAPlaceWaitsForTheOneBefore) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const int me = rank.group.rank();
    const auto letter = [&](Letters& one) { me == 0 ? one.send(1, 5000) : one.receive(0, 5000); };
    Letters quick(rank), held_one(rank), late(rank);
    for (Letters* const one : {&quick, &held_one, &late}) letter(*one);
    const auto by_another = [&] {
      const GpuStream stream = rank.stream();
      return quick.enqueue(stream) && ends_well(rank, stream);
    };
    for (int i = 0; i < 2; ++i)
      if (!by_another()) return;
    const GpuStream held = rank.stream(), last = rank.stream();
    void* word = nullptr;
    rank.gpus.on(rank.gpu, [&] { return rank.gpus.driver()->cuMemHostAlloc(&word, 4, 3); });
    *static_cast<std::uint32_t*>(word) = 0;
    if (me == 0)
      rank.gpus.on(rank.gpu, [&] {
        return rank.gpus.driver()->cuStreamWaitValue32_v2(held, reinterpret_cast<sys::cuda::Address>(word), 1, 0);
      });
    if (!held_one.enqueue(held)) return;
    for (int i = 3; i < 6; ++i)
      if (!by_another()) return;
    if (!late.enqueue(last)) return;  // the seventh: the oldest whose end is known is the held one
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (rank.is_idle(last)) return (void)rank.fail("did not wait");
    std::atomic_ref(*static_cast<std::uint32_t*>(word)).store(1);
    if (!ends_well(rank, last) || !rank.synchronize(held)) return (void)rank.fail("afterwards");
    if (held_one.is_right()) (void)late.is_right();
  });
}

TEST(GpuMessage, ACaptureKeepsItsPlaceAndTheSeventhIsRefused) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    Letters letters(rank);
    rank.group.rank() == 0 ? letters.send(1, 9) : letters.receive(0, 9);
    Graphs graphs(rank);
    for (int i = 0; i < 6; ++i)
      if (graphs.capture(stream, [&] { return letters.enqueue(stream); }) == nullptr)
        return (void)rank.fail("no graph " + std::to_string(i));
    const Status full = rank.group.stream_messages(letters.group, rank.stream());
    if (full.code() != ErrorCode::resource_exhausted || full.message().find("go on 6 captures") == std::string::npos)
      (void)rank.fail(full.to_string());
  });
}

// The seventh stream takes over another place on either rank, whose order of messages differs: no message arrives as
// another stream's of the same size.
TEST(GpuMessage, RanksThatUseManyStreamsInDifferentOrdersAreTold) {
  run_gpu_ranks(2, 10min, [](GpuRank& rank) {
    const int me = rank.group.rank();
    std::vector<GpuStream> streams;
    Letters letter(rank);
    me == 0 ? letter.send(1, 64) : letter.receive(0, 64);
    for (int i = 0; i < 6; ++i) {
      streams.push_back(rank.stream());
      if (!letter.enqueue(streams.back()) || !ends_well(rank, streams.back())) return;
    }
    const std::size_t first = me == 0 ? 2 : 3;
    for (const std::size_t i : {first, 5 - first})
      if (!letter.enqueue(streams[i])) return;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{5}})
      if (!letter.enqueue(streams[i]) || !ends_well(rank, streams[i])) return;
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    const GpuStream seventh = rank.stream();
    // Refused, too, once it is known here.
    for (const GpuStream& stream : {seventh, streams[first]})
      if (const Status told = rank.group.stream_messages(letter.group, stream);
          !told && told.code() != ErrorCode::invalid_argument)
        return (void)rank.expect(told, "messages");
    if (!rank.synchronize(seventh) || !rank.synchronize(streams[first]))
      return (void)rank.fail("the context is broken");
    const Status status = rank.group.stream_status();
    if (me == 1 && status.code() != ErrorCode::invalid_argument) (void)rank.fail("ends with " + status.to_string());
  });
}

// The first place is wide, the others are not.
TEST(GpuMessage, LongOnesGoThroughEveryPlace) {
  run_gpu_ranks(3, 10min, [](GpuRank& rank) {
    const int size = rank.group.size(), me = rank.group.rank();
    for (int i = 0; i < 6; ++i) {
      const GpuStream stream = rank.stream();
      Letters letters(rank);
      letters.send((me + 1) % size, (2U << 20) + 77);
      letters.receive((me + size - 1) % size, (2U << 20) + 77);
      if (!letters.enqueue(stream) || !letters.enqueue(stream)) return;
      if (!ends_well(rank, stream) || !letters.is_right()) return;
    }
  });
}

struct GpuMessageFailures : testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, GpuMessageFailures, testing::Values(10, 3'000'000));

// Rank 0 sends to rank 1, rank 2 waits for rank 0 in a collective. Of each fault rank 0 and 2 hear, and name rank 1.
TEST_P(GpuMessageFailures, ARankAtFaultIsNamed) {
  for (const std::string fault : {"late", "killed", "shorter"})
    for (const bool receives : {false, true})
      run_gpu_ranks(
          3, 20s,
          [&](GpuRank& rank) {
            const GpuStream stream = rank.stream(), second = rank.stream();
            const int me = rank.group.rank();
            const auto letters = [&](std::size_t bytes) {
              Letters made(rank);
              if (me == 2) return made;
              (me == 0) == receives ? made.receive(1 - me, bytes) : made.send(1 - me, bytes);
              return made;
            };
            Letters before = letters(GetParam()), fails = letters(fault == "shorter" && me == 1 ? 9 : GetParam());
            if (!before.enqueue(stream) || !ends_well(rank, stream)) return;
            if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
            if (me == 1 && fault == "killed") ::raise(SIGKILL);
            if (me == 1 && fault == "late") return (void)rank.group.run({});
            if (me == 2) {
              if (!rank.expect(rank.group.stream_run({}, second), "a barrier")) return;
            } else if (!fails.enqueue(stream, fault == "shorter" ? Timeout(20s) : Timeout(400ms))) {
              return;
            }
            if (!rank.synchronize(me == 2 ? second : stream)) return (void)rank.fail("the context is broken");
            const Status status = rank.group.stream_status();
            if (status) return (void)rank.fail("it ended well");
            if (fault == "shorter") {
              if (me != 2 && status.code() != ErrorCode::invalid_argument) (void)rank.fail(status.to_string());
              return;
            }
            if (rank.group.failure().rank != 1) return (void)rank.fail("blames " + status.to_string());
            const std::string words = receives ? "message 2 from rank 1 to rank 0" : "message 2 from rank 0 to rank 1";
            if (me == 0 && status.message().find(words) == std::string::npos) (void)rank.fail(status.to_string());
          },
          fault == "killed" ? 1 : -1);
}

TEST(GpuMessageFailure, AnotherRanksFailureEndsItToo) {
  run_gpu_ranks(3, 20s, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    const int me = rank.group.rank();
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (me == 2) {  // waits for the others in a collective until its deadline
      Collective call{.kind = CollectiveKind::barrier, .timeout = 200ms};
      if (!rank.expect(rank.group.stream_run(call, stream), "a barrier")) return;
    } else if (me == 1) {  // rank 0 never sends
      Letters letters(rank);
      letters.receive(0, 100);
      if (!letters.enqueue(stream, 10min)) return;
    } else {
      return (void)rank.group.run({});
    }
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    if (rank.group.stream_status()) (void)rank.fail("it ended well");
  });
}

TEST(GpuMessageRoom, IsAskedForOnEveryRank) {
  run_gpu_ranks(
      2, 30s,
      [](GpuRank& rank) {
        const StreamMessage one{rank.memory(64), 64, 1 - rank.group.rank(), rank.group.rank() == 0};
        const Status refused = rank.group.stream_messages({&one, 1}, rank.stream());
        if (refused.code() != ErrorCode::invalid_argument || refused.message().find("messages") == std::string::npos)
          return (void)rank.fail("without room: " + refused.to_string());
        auto other = rank.group.split(0);
        if (!rank.expect(other.status(), "split")) return;
        const Status differ = other->use_gpu(rank.gpu, {.nccl = NcclUse::never, .messages = rank.group.rank() == 0});
        if (differ.code() != ErrorCode::invalid_argument || differ.message().find("messages") == std::string::npos)
          (void)rank.fail("ranks that differ: " + differ.to_string());
      },
      -1, {.nccl = NcclUse::never});
}

TEST(GpuMessageWhoHangs, TheRankThatNeverCameIsNamed) {
  run_gpu_ranks(3, 10min, [](GpuRank& rank) {
    const GpuStream stream = rank.stream();
    const int me = rank.group.rank();
    Letters letters(rank);
    if (me == 1) letters.receive(2, 100);
    if (me == 2) letters.send(1, 100);
    if (me == 1 && !letters.enqueue(stream)) return;
    std::string last = "nobody";
    for (int i = 0; me == 1 && i < 20'000; ++i) {
      for (const std::string& said : who_hangs(progress_of_ranks(), 0.02))
        if (said.find("message") != std::string::npos) last = said;
      if (last.find("rank 2 never entered message 1 from rank 2 to rank 1") != std::string::npos) break;
      std::this_thread::sleep_for(1ms);
    }
    if (me == 1 && (last.find("rank 2 never") == std::string::npos || last.find("rank 0") != std::string::npos))
      return (void)rank.fail("says " + last);
    if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    if (me == 2 && !letters.enqueue(stream)) return;
    if (ends_well(rank, stream)) (void)letters.is_right();
  });
}

}  // namespace
}  // namespace fairway

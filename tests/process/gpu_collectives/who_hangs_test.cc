#include <algorithm>
#include <thread>

#include <unistd.h>

#include "fairway/progress.h"

#include "process/gpu_collectives/gpu_rank.h"

// Kernels tell by themselves where they are.
namespace fairway {
namespace {

using namespace std::chrono_literals;

// What the ranks of this communicator tell.
std::vector<RankProgress> of_this_group() {
  auto all = progress_of_ranks();
  const auto own = std::find_if(all.begin(), all.end(),
                                [](const auto& one) { return one.process == static_cast<std::uint64_t>(::getpid()); });
  const std::uint64_t group = own == all.end() ? 0 : own->group;
  std::erase_if(all, [group](const auto& one) { return one.group != group; });
  return all;
}

// The number of this process's newest operation of the host.
std::uint64_t newest() {
  for (const RankProgress& one : of_this_group())
    if (one.stream < 0 && one.process == static_cast<std::uint64_t>(::getpid())) return one.operation;
  return 0;
}

// Until that is said. On a busy machine another rank may be late for a while.
bool is_said(const std::string& what, std::string& last) {
  for (int i = 0; i < 20'000; ++i) {
    if (const auto verdicts = who_hangs(of_this_group(), 0.02); !verdicts.empty()) last = verdicts[0];
    if (last.find(what) != std::string::npos) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

TEST(GpuWhoHangs, ARankWhoseStreamNeverCameIsNamed) {
  run_gpu_ranks(3, 10min, [](GpuRank& rank) {
    const GpuStream first = rank.stream(), stream = rank.stream();
    std::byte* const place = rank.memory(400'000);
    Collective call{.kind = CollectiveKind::all_reduce, .count = 100, .type = DataType::i32};
    call.input = call.output = place;
    const auto enqueue = [&](GpuStream on) { return rank.expect(rank.group.stream_run(call, on), "enqueuing"); };
    const std::uint64_t begin = newest();
    if (!enqueue(first)) return;
    if (!rank.synchronize(first)) return (void)rank.fail("the context is broken");
    if (!enqueue(stream) || !enqueue(stream)) return;
    if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
    for (const std::size_t count : {std::size_t{10}, std::size_t{100'000}}) {  // by units, and with the area
      call.count = count;
      // Two barriers of the hosts lie between.
      const std::string number = std::to_string(begin + (count == 10 ? 4 : 7));
      if (rank.group.rank() != 2 && !enqueue(stream)) return;
      if (rank.group.rank() == 0) {
        std::string last = "nobody";
        if (!is_said("rank 2 never entered all_reduce " + number + " on stream 1: ", last))
          return (void)rank.fail(last);
        if (!rank.expect(rank.group.send("go", 2, 2), "telling rank 2")) return;
      }
      char go[2];
      if (rank.group.rank() == 2 && (!rank.expect(rank.group.receive(go, 2, 0), "hearing") || !enqueue(stream))) return;
      if (!rank.synchronize(stream)) return (void)rank.fail("the context is broken");
      if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
      const auto all = of_this_group();
      for (const RankProgress& one : all)
        if (one.stream >= 0 && one.inside) return (void)rank.fail("an operation that has ended is told as waiting");
      if (!rank.expect(rank.group.run({}), "a barrier of the hosts")) return;
    }
  });
}

TEST(GpuWhoHangs, TellsWhoWasNeverThereIsGoneOrStopped) {
  std::vector<RankProgress> ranks;
  for (int i = 0; i < 6; ++i) {
    RankProgress one;
    one.name = "world";
    one.group = 7;
    one.rank = i % 3;
    one.size = 3;
    one.process = 100 + static_cast<std::uint64_t>(i % 3);
    one.lives = true;
    one.kind = CollectiveKind::all_gather;
    if (i >= 3) one.stream = 4, one.call = 9, one.operation = 33;
    ranks.push_back(one);
  }
  EXPECT_TRUE(who_hangs(ranks).empty());  // they may have ended
  RankProgress& front = ranks[3];
  front.inside = true;
  front.waits_for = 2;
  front.seconds = 2;
  EXPECT_TRUE(who_hangs(ranks, 3).empty());
  const auto said = [&] {
    const auto all = who_hangs(ranks, 1);
    return all.size() == 1 ? all[0] : std::to_string(all.size());
  };
  EXPECT_EQ(said(),
            "\"world\": every rank here has entered all_gather 33 on stream 4; rank 0 waits for rank 2; "
            "rank 0 has waited in it for 2.0 s");
  ranks[4].call = 8;
  ranks[4].operation = 30;
  ranks[1].stopped = true;
  ranks[2].lives = false;
  EXPECT_EQ(said(),
            "\"world\": rank 1 never entered all_gather 33 on stream 4: the last there in which it waited is "
            "all_gather 30; its "
            "process 101 is stopped; rank 2 is gone (process 102); rank 0 has waited in it for 2.0 s");
  ranks[2].lives = true;
  ranks[2].inside = true;
  ranks[2].operation = 31;
  ranks[2].seconds = 0.5;
  ranks[4] = ranks[3];
  ranks[4].rank = 1;
  ranks.pop_back();
  EXPECT_NE(said().find(
                "rank 2 never entered all_gather 33 on stream 4: it has waited in none there before; its host has been "
                "in all_gather 31 for 0.5 s"),
            std::string::npos)
      << said();
}

}  // namespace
}  // namespace fairway

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fairway/progress.h"

#include "collectives/job/progress.h"
#include "process/collectives/group.h"
#include "sys/own_folder.h"

// Who keeps a communicator's ranks waiting, by what each tells of itself in /dev/shm.
namespace fairway {
namespace {

GroupOptions group(int size) {
  GroupOptions options;
  options.size = size;
  return options;
}

// The file that this process tells in. Numbers of processes come again, and a killed one's files stay for an hour: of
// several it is the one of the process that started last.
std::filesystem::path own_file() {
  std::filesystem::path own;
  std::uint64_t last = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sys::make_own_folder("/dev/shm").value())) {
    if (!entry.path().filename().string().starts_with(std::to_string(::getpid()) + "-")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::uint64_t started = 0;
    file.seekg(offsetof(collectives::ProgressWords, started));
    if (!file.read(reinterpret_cast<char*>(&started), sizeof started) || started < last) continue;
    last = started;
    own = entry.path();
  }
  return own;
}

TEST(WhoHangs, NamesTheRankThatNeverEntered) {
  GroupOptions options = group(3);
  options.communicator.name = "who-hangs-" + std::to_string(::getpid());
  const auto ends = run_processes(options, [](Engine& engine, Communicator& communicator) {
    float value = 1;
    const Collective call{
        .kind = CollectiveKind::all_reduce, .input = &value, .output = &value, .count = 1, .type = DataType::f32};
    for (int i = 0; i < 4; ++i)
      if (!communicator.run(call)) return 1;
    if (communicator.rank() == 2) {  // alive, and elsewhere, until it is named
      const std::string name = "who-hangs-" + std::to_string(::getppid());
      std::vector<RankProgress> ranks;
      for (int i = 0; i < 60'000; ++i) {
        (void)engine.wait_notification(std::chrono::milliseconds(1));
        ranks = progress_of_ranks();
        std::erase_if(ranks, [&](const RankProgress& rank) { return rank.name != name; });
        if (std::count_if(ranks.begin(), ranks.end(), [](const RankProgress& rank) { return rank.inside; }) < 2)
          continue;
        const auto verdicts = who_hangs(ranks);
        if (verdicts.size() == 1 &&
            verdicts[0].find("rank 2 never entered all_reduce 6: it ended all_reduce 5") != std::string::npos)
          return communicator.run(call) && value == 3 * 27 * 3 ? 0 : 2;
        std::fprintf(stderr, "%s\n", verdicts.empty() ? "nobody" : verdicts[0].c_str());
        return 3;
      }
      std::fprintf(stderr, "%zu ranks tell of themselves\n", ranks.size());
      return 4;
    }
    return communicator.run(call) ? 0 : 5;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

// Numbers of processes come again: files that a killed process left may have this one's names.
TEST(WhoHangs, TellsOfARankThoughAKilledProcessOfItsNumberLeftFiles) {
  GroupOptions options = group(2);
  options.communicator.name = "left-" + std::to_string(::getpid()) + "-" +
                              std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  const auto ends = run_processes(options, [&options](Engine&, Communicator& communicator) {
    const std::filesystem::path own = own_file();
    const std::string begins = own.parent_path() / (std::to_string(::getpid()) + "-");
    std::vector<std::string> all;
    for (int number = 1; all.size() < 5; ++number) {  // what lies there of others stays
      const std::string path = begins + std::to_string(number);
      if (std::filesystem::exists(path)) continue;
      std::filesystem::copy_file(own, path);
      std::fstream file(path);
      file.seekp(offsetof(collectives::ProgressWords, started));
      file.write("\1\0\0\0\0\0\0", 8);  // it started before
      all.push_back(path);
    }
    const auto part = communicator.split(0);
    auto ranks = progress_of_ranks();
    for (const std::string& path : all) std::filesystem::remove(path);
    std::erase_if(ranks, [&](const RankProgress& rank) {
      return !rank.name.starts_with(options.communicator.name) ||
             rank.process != static_cast<std::uint64_t>(::getpid());
    });
    if (!part || ranks.size() != 7) return 1;
    return std::count_if(ranks.begin(), ranks.end(), [](const RankProgress& rank) { return rank.lives; }) == 2 ? 0 : 2;
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.well) << end.said;
}

// What lies there beside: a pipe that nobody writes, a rank of long ago, and one with a name that a terminal obeys.
TEST(WhoHangs, ReadsWhatItFindsWithoutWaiting) {
  run_group(group(1), [](Engine&, Communicator& communicator) {
    EXPECT_TRUE(communicator.run({}));
    const std::filesystem::path folder = sys::make_own_folder("/dev/shm").value();
    const std::string pipe = folder / ("pipe-" + std::to_string(::getpid()));
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const std::filesystem::path own = own_file();
    const auto left = [&](const char* name, std::uint64_t group, std::uint64_t since) {
      std::string path = folder / ("left-" + std::string(name).substr(0, 4) + std::to_string(::getpid()));
      std::filesystem::copy_file(own, path);
      std::fstream file(path);
      const auto put = [&](std::size_t at, const void* bytes, std::size_t size) {
        file.seekp(static_cast<std::streamoff>(at));
        file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
      };
      const std::uint64_t none = 1;
      put(offsetof(collectives::ProgressWords, started), &none, sizeof none);
      put(offsetof(collectives::ProgressWords, group), &group, sizeof group);
      put(offsetof(collectives::ProgressWords, name), name, std::strlen(name) + 1);
      if (since == 0) return path;
      put(offsetof(collectives::ProgressWords, since), &since, sizeof since);
      // A stream that it used, and in which it does not wait.
      put(offsetof(collectives::ProgressPages, told) + offsetof(collectives::gpu::Told, entered), &none, sizeof none);
      return path;
    };
    const std::string old = left("long ago", 1234, 1), odd = left("odd \x1b[2J\n", 1235, 0);
    const auto ranks = progress_of_ranks();
    for (const std::string& path : {pipe, old, odd}) ::unlink(path.c_str());
    const auto named = [&](const char* name) {
      return std::count_if(ranks.begin(), ranks.end(), [&](const RankProgress& rank) { return rank.name == name; });
    };
    EXPECT_EQ(named("long ago"), 0);
    EXPECT_EQ(named("odd \\x1b[2J\\x0a"), 1);
  });
}

// Another container's process: its number means nothing here, and its file is locked while it lives.
TEST(WhoHangs, KnowsRanksOfOtherPidNamespacesByTheirLock) {
  run_group(group(1), [](Engine&, Communicator&) {
    const std::filesystem::path folder = sys::make_own_folder("/dev/shm").value();
    const std::filesystem::path own = own_file();
    const std::string path = folder / ("elsewhere-" + std::to_string(::getpid()));
    std::filesystem::copy_file(own, path);
    const std::uint64_t space = 1, number = 0x7fffffff;
    {
      std::fstream file(path);
      for (const auto& [at, word] : {std::pair(offsetof(collectives::ProgressWords, space), &space),
                                     std::pair(offsetof(collectives::ProgressWords, process), &number)}) {
        file.seekp(static_cast<std::streamoff>(at));
        file.write(reinterpret_cast<const char*>(word), sizeof *word);
      }
    }
    const auto lives = [&] {
      const auto ranks = progress_of_ranks();
      const auto found =
          std::find_if(ranks.begin(), ranks.end(), [&](const auto& one) { return one.process == number; });
      return found != ranks.end() && found->lives;
    };
    const int holder = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_FALSE(lives());
    EXPECT_EQ(::flock(holder, LOCK_EX | LOCK_NB), 0);
    EXPECT_TRUE(lives());
    ::close(holder);
    EXPECT_FALSE(lives());
    ::unlink(path.c_str());
  });
}

TEST(WhoHangs, TellsTheGoneTheStoppedAndTheWaiting) {
  std::vector<RankProgress> ranks(4);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].name = "world";
    ranks[i].group = 7;
    ranks[i].rank = static_cast<int>(i);
    ranks[i].size = 5;
    ranks[i].process = 100 + i;
    ranks[i].lives = true;
    ranks[i].operation = 12;
    ranks[i].kind = CollectiveKind::barrier;
    ranks[i].inside = true;
    ranks[i].seconds = 3;
    ranks[i].waits_for = i == 0 ? 1 : 0;
    ranks[i].phase = "step 2 of 6";
  }
  EXPECT_TRUE(who_hangs(ranks, 5).empty());
  auto text = who_hangs(ranks, 1);
  ASSERT_EQ(text.size(), 1U);
  EXPECT_NE(text[0].find("every rank here is in barrier 12; rank 0 waits for rank 1 (step 2 of 6)"), std::string::npos)
      << text[0];
  EXPECT_NE(text[0].find("of its 5 ranks 1 are not on this host"), std::string::npos) << text[0];
  ranks[1].lives = false;
  ranks[2].stopped = true;
  ranks[3].operation = 11;
  text = who_hangs(ranks, 1);
  ASSERT_EQ(text.size(), 1U);
  EXPECT_NE(text[0].find("rank 1 is gone (process 101); rank 2 is in barrier 12; its process 102 is stopped; rank 3 "
                         "never entered barrier 12: it has been in barrier 11 for 3.0 s"),
            std::string::npos)
      << text[0];
  for (RankProgress& rank : ranks) rank.inside = false;
  EXPECT_TRUE(who_hangs(ranks, 0).empty());
}

// With local completion a rank is ahead of those that it sends to: rank 0 waits for rank 1, that one for rank 2, and
// rank 3 computes.
TEST(WhoHangs, NamesOnlyWhoIsFurthestBackWhereRanksRunAhead) {
  std::vector<RankProgress> ranks(4);
  const std::uint64_t operations[] = {25, 17, 8, 24};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].name = "world";
    ranks[i].group = 7;
    ranks[i].rank = static_cast<int>(i);
    ranks[i].size = 4;
    ranks[i].lives = true;
    ranks[i].operation = operations[i];
    ranks[i].kind = CollectiveKind::broadcast;
    ranks[i].inside = i < 2;
    ranks[i].seconds = 3;
    ranks[i].waits_for = i < 2 ? static_cast<int>(i) + 1 : -1;
  }
  const auto text = who_hangs(ranks, 1);
  ASSERT_EQ(text.size(), 1U);
  EXPECT_EQ(
      text[0],
      "\"world\": rank 2 never entered broadcast 25: it ended broadcast 8 3.0 s ago; rank 0 has been in it for 3.0 "
      "s");
}

}  // namespace
}  // namespace fairway

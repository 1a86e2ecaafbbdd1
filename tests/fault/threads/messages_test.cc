// Messages of several threads at once, each with a tag of its own, while another thread writes: every tag's come in the
// order in which they were sent, each once and whole.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pair.h"
#include "support/at_length.h"

namespace fairway::threads {
namespace {

constexpr std::uint64_t kWindow = 32;  // receives posted ahead, and sends not yet waited for

std::uint64_t how_many() {  // of each thread
  if (const char* messages = std::getenv("FAIRWAY_THREADS_MESSAGES"))
    return std::strtoull(messages, nullptr, 10) / kThreads;
  return at_length() ? 1'000'000 : 10'000;
}

struct Letter {
  std::uint64_t number, thread, check;
  static Letter of(std::uint64_t number, std::uint64_t thread) { return {number, thread, ~number * 31 + thread}; }
  bool operator==(const Letter&) const = default;
};

class Messages : public testing::TestWithParam<const char*> {};

TEST_P(Messages, OfFourThreadsStayInOrderByTag) {
  const auto opened = Pair::open(GetParam(), Progress::threads);
  ASSERT_TRUE(opened) << opened.status().to_string();
  Pair& pair = **opened;
  Engine& from = *pair.sides[0].engine;
  Engine& to = *pair.sides[1].engine;
  const std::uint64_t total = how_many();
  std::atomic<std::uint64_t> wrong{0};
  std::mutex mutex;
  std::string why;  // the first thread has ended; guarded by mutex
  const auto fails = [&](const char* what, std::uint64_t number, const Status& status) {
    const std::lock_guard lock(mutex);
    if (wrong++ == 0) why = fmt::format("{} {}: {}", what, number, status.to_string());
  };
  std::atomic<bool> stop{false};
  const auto send = [&](std::uint64_t thread) {
    std::vector<TransferId> ids(kWindow);
    for (std::uint64_t number = 0; number < total + kWindow; ++number) {
      TransferId& id = ids[number % kWindow];
      if (number >= kWindow) {
        const auto done = from.wait(id, kEver);
        if (!done || !done->status) return fails("sent", number - kWindow, done ? done->status : done.status());
      }
      if (number >= total) continue;
      const std::uint64_t at = thread * kArea + number % kWindow * sizeof(Letter);
      const Letter letter = Letter::of(number, thread);
      std::memcpy(pair.sides[0].memory.data() + at, &letter, sizeof letter);
      RequestOptions options;
      options.local_completion = number % 3 != 0;
      const auto sent = from.send(pair.sides[0].other, thread, {pair.sides[0].region.id, at, sizeof letter}, options);
      if (!sent) return fails("send", number, sent.status());
      id = *sent;
    }
  };
  const auto receive = [&](std::uint64_t thread) {
    std::vector<TransferId> ids(kWindow / 2);
    for (std::uint64_t number = 0; number < total + ids.size(); ++number) {
      TransferId& id = ids[number % ids.size()];
      const std::uint64_t at = thread * kArea + number % ids.size() * sizeof(Letter);
      if (number >= ids.size()) {
        const auto done = to.wait(id, kEver);
        Letter letter{};
        std::memcpy(&letter, pair.sides[1].memory.data() + at, sizeof letter);
        if (!done || !done->status) return fails("received", number - ids.size(), done ? done->status : done.status());
        wrong += letter == Letter::of(number - ids.size(), thread) ? 0 : 1;
      }
      if (number >= total) continue;
      const auto posted = to.receive(pair.sides[1].other, thread, {pair.sides[1].region.id, at, sizeof(Letter)});
      if (!posted) return fails("receive", number, posted.status());
      id = *posted;
    }
  };
  std::vector<std::thread> threads;
  std::thread writer([&] {
    const std::uint64_t at = kThreads * kArea;
    while (!stop) {
      const auto id =
          from.write(pair.sides[0].other, Extent{{pair.sides[0].region.id, at, 8192}, {pair.sides[0].remote.id, at}});
      if (id) (void)from.wait(*id, kEver);
    }
  });
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(send, thread);
    threads.emplace_back(receive, thread);
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  writer.join();
  EXPECT_EQ(wrong, 0u) << "of " << kThreads * total << " messages; " << why;
}

INSTANTIATE_TEST_SUITE_P(Over, Messages, testing::Values("loopback", "shm", "tcp"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace fairway::threads

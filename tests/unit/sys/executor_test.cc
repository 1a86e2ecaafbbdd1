#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/epoll_set.h"
#include "sys/fd.h"
#include "sys/system_runtime.h"
#include "sys/thread_executor.h"
#include "sys/thread_task.h"

namespace fairway::sys {
namespace {

// Counts its steps; asks for what the test says.
class Counter : public Stepper {
 public:
  Time step(Time now) override {
    last.store(now);
    steps.fetch_add(1);
    return delay.load() == kNever ? kNever : now + delay.load();
  }
  bool prepare_sleep() override {
    sleeps.fetch_add(1);
    return true;
  }
  std::atomic<std::uint64_t> steps{0};
  std::atomic<std::uint64_t> sleeps{0};
  std::atomic<Time> last{0};
  std::atomic<Time> delay{kNever};
};

class StoppedClock : public Clock {
 public:
  Time now() override { return at; }
  std::uint64_t unix_ns() override { return at; }
  Time at = kSecond;
};

// From here on this thread's epoll_pwait2 fails with `error`, as on an old kernel or under a container's filter.
bool without_epoll_pwait2(int error) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{4, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(EpollSet, WaitsInMillisecondsWhereTheKernelRefusesFinerOnes) {
  for (const int error : {ENOSYS, EPERM}) {
    bool filtered = false;
    int seen = -1, in_vain = -1;
    std::thread filtering([&] {
      filtered = without_epoll_pwait2(error);
      if (!filtered) return;
      struct Told : Readiness {
        void on_ready(std::uint32_t) override {}
      } told;
      const auto epoll = EpollSet::make(true);
      ASSERT_TRUE(epoll) << epoll.status().to_string();
      const Fd event(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
      ASSERT_TRUE((*epoll)->watch_edge(event.get(), told));
      seen = (*epoll)->wait(10 * kSecond);
      in_vain = (*epoll)->wait(kMicrosecond);
    });
    filtering.join();
    if (!filtered) GTEST_SKIP() << "this system allows no seccomp filter";
    EXPECT_EQ(seen, 1) << "what was there was not seen after errno " << error;
    EXPECT_EQ(in_vain, 0);
  }
}

TEST(EventSignal, APollerLooksForEdgesEveryFewMicrosecondsAndASleeperWakesAtOnce) {
  struct Told : Readiness {
    void on_ready(std::uint32_t) override { ++times; }
    int times = 0;
  } told;
  StoppedClock clock;
  auto signal = EventSignal::make(clock);
  ASSERT_TRUE(signal) << signal.status().to_string();
  EpollSet& epoll = *static_cast<EventSignal&>(**signal).epoll();
  const Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(epoll.watch_edge(event.get(), told));
  (*signal)->clear();
  EXPECT_EQ(told.times, 1);  // it can be written
  (*signal)->clear();        // what this look had set
  ASSERT_EQ(::eventfd_write(event.get(), 1), 0);
  for (int poll = 0; poll < 100; ++poll) (*signal)->clear();
  EXPECT_EQ(told.times, 1);
  pollfd sleeper{epoll.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&sleeper, 1, 0), 1);
  clock.at += 4 * kMicrosecond;
  (*signal)->clear();
  EXPECT_EQ(told.times, 2);
  EXPECT_EQ(::poll(&sleeper, 1, 0), 0);  // nothing is left to wake for, but the signal is set
  epoll.forget(event.get());
}

TEST(SystemClock, AboutIsNeverAheadAndLateByItsBoundAtMost) {
  SystemClock clock;
  Clock::Reading last;
  for (int i = 0; i < 20'000; ++i) {
    if (i % 5'000 == 4'999) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Time before = clock.now();
    const Time about = clock.about(last);
    ASSERT_LE(about, clock.now());
    ASSERT_GE(about + Clock::kLate, before);
  }
}

TEST(Executor, JobsAllRunOnceAndSideBySide) {
  SystemRuntime system;
  Executor& executor = system.runtime().executor;
  std::vector<std::atomic<int>> ran(100);
  executor.run_all(ran.size(), [&](std::size_t i) { ++ran[i]; });
  for (const auto& each : ran) EXPECT_EQ(each.load(), 1);
  executor.run_all(0, [](std::size_t) { FAIL(); });
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor: one after the other";
  std::atomic<int> here{0};
  executor.run_all(2, [&](std::size_t) {
    for (++here; here.load() < 2;) std::this_thread::yield();
  });
  EXPECT_EQ(here.load(), 2);
}

template <class Condition>
bool within(Clock& clock, Time limit, Condition condition) {
  for (const Time end = clock.now() + limit; clock.now() < end;
       std::this_thread::sleep_for(std::chrono::microseconds(50)))
    if (condition()) return true;
  return condition();
}

struct Executors : testing::Test {
  SystemRuntime system;
  Runtime runtime = system.runtime();
  Counter counter;

  std::unique_ptr<Task> start(Time spin_ns = 0) {
    TaskOptions options;
    options.name = "counter";
    options.spin_ns = spin_ns;
    auto task = runtime.executor.start(options, counter);
    EXPECT_TRUE(task.is_ok());
    return std::move(task).value();
  }
};

TEST_F(Executors, SleepsWhenThereIsNothingToDo) {
  auto task = start();
  ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return counter.sleeps.load() >= 1; }));
  const auto steps = counter.steps.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(counter.steps.load(), steps);
}

TEST_F(Executors, StepsAfterEveryWake) {
  auto task = start();
  for (int i = 0; i < 2000; ++i) {
    const auto steps = counter.steps.load();
    task->wake();
    ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return counter.steps.load() > steps; }))
        << "wake-up " << i << " lost";
  }
}

// A queue of one counter: what a producer published before wake() is always taken, however the sleeps interleave.
TEST_F(Executors, LosesNoWakeUpUnderPressure) {
  struct Consumer : Stepper {
    Time step(Time) override {
      taken.store(published.load(std::memory_order_acquire), std::memory_order_release);
      return kNever;
    }
    std::atomic<std::uint64_t> published{0};
    std::atomic<std::uint64_t> taken{0};
  } consumer;
  TaskOptions options;
  options.name = "consumer";
  options.spin_ns = 2 * kMicrosecond;
  auto task = runtime.executor.start(options, consumer);
  ASSERT_TRUE(task.is_ok());
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    consumer.published.store(i, std::memory_order_release);
    task.value()->wake();
    if (i % 64 != 0) continue;
    ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return consumer.taken.load() >= i; })) << "lost at " << i;
  }
}

TEST_F(Executors, KeepsTheTimeThatAStepAskedFor) {
  counter.delay.store(5 * kMillisecond);
  auto task = start();
  ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return counter.sleeps.load() >= 20; }));
  // A busy host delays timers, so only a runaway is an error: 20 sleeps of 5 ms with at most two steps each.
  EXPECT_LE(counter.steps.load(), 80U);
}

TEST_F(Executors, DestroyingATaskEndsItsSteps) {
  counter.delay.store(0);
  auto task = start();
  ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return counter.steps.load() > 100; }));
  task.reset();
  const auto steps = counter.steps.load();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(counter.steps.load(), steps);
}

TEST_F(Executors, AWatchedDescriptorWakes) {
  auto task = start();
  ASSERT_TRUE(within(runtime.clock, kSecond, [&] { return counter.sleeps.load() >= 1; }));
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  const auto steps = counter.steps.load();
  ASSERT_TRUE(task->watch(event.get()).is_ok());
  ::eventfd_write(event.get(), 1);
  EXPECT_TRUE(within(runtime.clock, kSecond, [&] { return counter.steps.load() > steps; }));
  task->unwatch(event.get());
  const auto rests = [&] {
    const auto before = counter.steps.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return counter.steps.load() == before;
  };
  EXPECT_TRUE(within(runtime.clock, kSecond, rests)) << "an unwatched descriptor still wakes";
}

TEST_F(Executors, ACallerSteppedTaskSetsItsSignal) {
  auto signal = runtime.executor.make_signal();
  ASSERT_TRUE(signal.is_ok());
  TaskOptions options;
  options.caller_steps = true;
  options.signal = signal.value().get();
  auto task = runtime.executor.start(options, counter);
  ASSERT_TRUE(task.is_ok());
  const auto readable = [&] {
    pollfd entry{signal.value()->fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  EXPECT_FALSE(readable());
  task.value()->wake();
  task.value()->wake();
  EXPECT_TRUE(readable());
  signal.value()->clear();
  EXPECT_FALSE(readable());
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(task.value()->watch(event.get()).is_ok());
  ::eventfd_write(event.get(), 1);
  EXPECT_TRUE(readable()) << "a watched descriptor shows in the signal's";
  EXPECT_EQ(counter.steps.load(), 0U);
}

TEST_F(Executors, WaitEndsByWakeByChangeAndByDeadline) {
  std::atomic<std::uint32_t> word{0};
  const Time start = runtime.clock.now();
  runtime.executor.wait(word, 0, start + 2 * kMillisecond);
  EXPECT_GE(runtime.clock.now(), start + 2 * kMillisecond);
  runtime.executor.wait(word, 1, kNever);  // it already changed
  for (std::uint32_t round = 0; round < 500; ++round) {
    std::thread waker([&] {
      word.store(round + 1);
      runtime.executor.wake_all(word);
    });
    while (word.load() == round) runtime.executor.wait(word, round, runtime.clock.now() + 5 * kSecond);
    waker.join();
  }
  EXPECT_LT(runtime.clock.now(), start + 5 * kSecond);
}

TEST_F(Executors, NobodySpinsWhenThreadsExceedCores) {
  Oversubscription oversubscription;
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < std::thread::hardware_concurrency() + 2; ++i)
    busy.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) relax();
    });
  EXPECT_TRUE(within(runtime.clock, 2 * kSecond, [&] { return oversubscription.detected(runtime.clock.now()); }));
  stop.store(true);
  for (auto& thread : busy) thread.join();
}

// Of a machine that may have 4,000 CPUs, on which this process has as many as no machine has online.
TEST(UsableCores, AreCountedBeyondThePlacesOfOneSet) {
  const auto many = [](pid_t, std::size_t bytes, cpu_set_t* set) {
    if (bytes * 8 < 4000) return errno = EINVAL, -1;
    for (std::size_t cpu = 1; cpu < 4000; cpu += 2) CPU_SET_S(cpu, bytes, set);
    return 0;
  };
  EXPECT_EQ(usable_cores(many), 2000u);
  EXPECT_GE(usable_cores([](pid_t, std::size_t, cpu_set_t*) { return errno = EPERM, -1; }), 1u);
}

TEST_F(Executors, RandomBytesDiffer) {
  std::array<std::byte, 32> a{};
  std::array<std::byte, 32> b{};
  runtime.rng.fill(a);
  runtime.rng.fill(b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace fairway::sys

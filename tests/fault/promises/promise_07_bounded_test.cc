// Promise 7, bounded: memory is a stated few KiB per connected peer plus what transfers in flight need, and does not
// grow with history. Full queues are reported and never grow without limit. Submitting only hands over: it does not
// touch the payload, wait or allocate. Cases: allocations counted by a replaced operator new; receivers that never
// drain; payload that is unreadable when it is submitted; a process short of descriptors or memory.
#include <array>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

TEST(Bounded, SubmittingAllocatesNothing) {
  Pair pair;
  const char text[] = "a notification's message";
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  std::array<Completion, 64> got;
  std::array<Notification, 64> seen;
  std::uint64_t in_submit = 0, everywhere = 0;
  constexpr std::uint64_t kApart = 200'000;  // from what is written beside it
  for (int round = 0; round < 3000; ++round) {
    if (round == 1000) {  // warmed up by now
      in_submit = 0;
      everywhere = allocations_of_all_threads();
    }
    options.notify = {};
    if (round % 3 == 0) options.notify = notify_event(1, std::as_bytes(std::span(text)));
    if (round % 3 == 1) options.notify = notify_counter(2);
    const std::uint64_t before = allocations_of_this_thread();
    const auto write = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 1 + round % 100'000), options);
    const auto read = pair.left.engine().read(pair.to_right, pair.extent(kApart, kApart, 64));
    in_submit += allocations_of_this_thread() - before;
    ASSERT_TRUE(write && read);
    EXPECT_TRUE(finish(pair.left.engine(), read).status);
    for (std::size_t left = 1; left > 0;) left -= pair.left.engine().poll(got);
    (void)pair.right.engine().poll_notifications(seen);
  }
  EXPECT_EQ(in_submit, 0u);
  // All threads of both engines together: polling notifications returns credits through a posted command, loopback
  // copies messages, control sends heartbeats. After 4,000 transfers nothing of this has grown with them.
  EXPECT_LT(allocations_of_all_threads() - everywhere, 6000u);
}

// The documented memory per connected peer and side: its session, one loopback link and its rings.
constexpr std::int64_t kPerPeer = 48 * 1024;

TEST(Bounded, APeerCostsAFewKiBAndItsHistoryNothing) {
  const auto loopback = make_loopback();
  Node hub(options_of(loopback, "hub"), 4096);
  std::vector<std::unique_ptr<Node>> others;
  for (int i = 0; i < 33; ++i)
    others.push_back(std::make_unique<Node>(options_of(loopback, "o" + std::to_string(i)), 4096));
  std::vector<PeerId> peers;
  std::vector<RemoteRegion> memory;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (i == 1) before = bytes_allocated();  // the first one allocated what all share
    auto peer = hub.engine().connect(others[i]->engine().address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    peers.push_back(*peer);
    memory.push_back(*hub.engine().lookup(*peer, "memory", kSoon));
  }
  const std::int64_t per_side = (bytes_allocated() - before) / 32 / 2;
  RecordProperty("bytes_per_peer_and_side", std::to_string(per_side));
  EXPECT_LT(per_side, kPerPeer);
  const auto work = [&] {
    for (std::size_t i = 0; i < peers.size(); ++i)
      for (int k = 0; k < 60; ++k) {
        RequestOptions options;
        options.notify = notify_counter(1);
        options.checksum = k % 10 == 0;
        const Extent extent{{hub.region().id, 0, 64}, {memory[i].id, 0}};
        ASSERT_TRUE(finish(hub.engine(), hub.engine().write(peers[i], extent, options)).status);
      }
  };
  work();
  const std::int64_t warm = bytes_allocated();
  for (int round = 0; round < 5; ++round) work();
  EXPECT_LT(bytes_allocated() - warm, 64 * 1024) << "memory that grows with history";
}

TEST(Bounded, AFullQueueIsACountAndWritableTellsWhenToGoOn) {
  EngineOptions options;
  options.max_transfers = 8;
  Pair pair(options);
  std::vector<Request> requests(20);
  for (Request& request : requests) {
    request.operation = Operation::receive;  // stay until they are cancelled
    request.peer = pair.to_right;
    request.layout = Extent{{pair.left.region().id, 0, 8}, {}};
  }
  std::vector<TransferId> ids(20);
  const Submitted first = pair.left.engine().submit(requests, ids);
  EXPECT_EQ(first.taken, 8u);
  EXPECT_TRUE(first.status.is_ok()) << "full is no error";
  EXPECT_FALSE(pair.left.engine().writable());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(pair.left.engine().submit(std::span(requests).subspan(8), ids).taken, 0u);
  }
  EXPECT_EQ(pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8)).status().code(), ErrorCode::queue_full);
  EXPECT_GE(pair.left.engine().metrics().back_pressure, 1000u);
  ASSERT_TRUE(pair.left.engine().cancel(ids[3], kSoon));
  EXPECT_EQ(finish(pair.left.engine(), ids[3]).status.code(), ErrorCode::cancelled);
  EXPECT_TRUE(pair.left.engine().writable());
  EXPECT_EQ(pair.left.engine().submit(std::span(requests).subspan(8), ids).taken, 1u);
}

TEST(Bounded, AReceiverThatNeverDrainsHoldsItsSendersBackAndGrowsNoList) {
  EngineOptions options;
  options.notifications_per_peer = 16;
  options.unexpected_bytes_per_peer = 4096;
  EngineOptions left_options = options;
  left_options.max_transfers = 512;
  Pair pair(left_options, options);
  RequestOptions event;
  event.notify = notify_event(1);
  std::vector<TransferId> ids;
  const auto fill = [&] {
    for (;;) {
      const std::uint64_t place = 64 * ids.size();  // two writes without order to one would be a race of their bytes
      const auto id = ids.size() % 2 == 0
                          ? pair.left.engine().write(pair.to_right, pair.extent(place, place, 64), event)
                          : pair.left.engine().send(pair.to_right, 1, {pair.left.region().id, 0, 100});
      if (!id) {
        EXPECT_EQ(id.status().code(), ErrorCode::queue_full);
        return;
      }
      ids.push_back(*id);
    }
  };
  fill();
  EXPECT_EQ(ids.size(), 512u);
  // It does not hold up others: a plain write passes as soon as one slot is free.
  ASSERT_TRUE(pair.left.engine().cancel(ids.back(), kSoon));
  (void)finish(pair.left.engine(), ids.back());
  ids.pop_back();
  EXPECT_TRUE(
      finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(1 << 19, 1 << 19, 64))).status);
  const std::int64_t before = bytes_allocated();
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(
        finish(pair.left.engine(), pair.left.engine().write(pair.to_right, pair.extent(1 << 19, 1 << 19, 64))).status);
  EXPECT_LT(bytes_allocated() - before, 64 * 1024);
  // Once the receiver drains, all of them arrive.
  std::array<Notification, 8> got;
  const PeerId to_left = pair.to_left();
  std::size_t events = 0;
  std::thread receiver([&] {
    for (int i = 0; i < 255; ++i) {
      const auto id = pair.right.engine().receive(to_left, 1, {pair.right.region().id, 512, 100});
      EXPECT_TRUE(finish(pair.right.engine(), id).status);
    }
  });
  while (events < 256 && pair.right.engine().wait_notification(kSoon))
    events += pair.right.engine().poll_notifications(got);
  receiver.join();
  for (const TransferId id : ids) EXPECT_TRUE(finish(pair.left.engine(), id).status);
}

TEST(Bounded, SubmittingDoesNotTouchThePayload) {
  EngineOptions options;
  options.progress = Progress::caller;  // nothing moves until this thread drives progress
  Pair pair(options);
  constexpr std::size_t kBytes = 1 << 20;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 0x42, kBytes);
  const auto region = pair.left.engine().register_memory(memory, kBytes, Access::none);
  ASSERT_TRUE(region);
  ASSERT_EQ(::mprotect(memory, kBytes, PROT_NONE), 0);
  const auto large = pair.left.engine().write(pair.to_right, Extent{{region->id, 0, kBytes}, {pair.remote.id, 0}});
  const auto small = pair.left.engine().send(pair.to_right, 1, {region->id, 0, 8});
  ASSERT_EQ(::mprotect(memory, kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_TRUE(finish(pair.left.engine(), large).status);
  EXPECT_EQ(pair.right.data()[kBytes - 1], 0x42);
  EXPECT_TRUE(pair.left.engine().cancel(*small, kSoon));
  pair.left.close();
  ::munmap(memory, kBytes);
}

TEST(Bounded, EveryTableSaysWhenItIsFull) {
  EngineOptions options;
  options.max_regions = 6;  // one for each worker's scratch memory, one of the node itself
  options.max_remote_regions = 3;
  Pair pair(options, options);
  std::vector<Region> regions;
  std::vector<std::uint64_t> memory(8);
  for (;;) {
    const auto region = pair.left.engine().register_memory(memory.data(), 64, Access::all);
    if (!region) {
      EXPECT_EQ(region.status().code(), ErrorCode::resource_exhausted);
      EXPECT_NE(region.status().message().find("max_regions"), std::string::npos);
      break;
    }
    regions.push_back(*region);
    ASSERT_LT(regions.size(), 7u);
  }
  EXPECT_TRUE(pair.left.engine().deregister(regions.back(), kSoon));
  EXPECT_TRUE(pair.left.engine().register_memory(memory.data(), 64, Access::all));
  bool full = false;
  for (int i = 0; i < 4 && !full; ++i) {
    const auto more = pair.right.engine().register_memory(memory.data(), 64, Access::all);
    if (!more) break;
    const auto imported = pair.left.engine().import_region(pair.to_right, *pair.right.engine().describe(*more));
    full = imported.status().code() == ErrorCode::resource_exhausted;
  }
  EXPECT_TRUE(full);
}

// Runs `body` in a child process, whose limits can be lowered. It returns an error text; empty means success.
void in_a_child(const std::function<std::string()>& body) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe_ends[0]);
    const std::string wrong = body();
    (void)!::write(pipe_ends[1], wrong.data(), wrong.size());
    ::_exit(wrong.empty() ? 0 : 1);
  }
  ::close(pipe_ends[1]);
  std::string said;
  char letter = 0;
  while (::read(pipe_ends[0], &letter, 1) == 1) said += letter;
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(said, "");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Bounded, OutOfDescriptorsIsAnErrorThatSaysSoAndNothingElseBreaks) {
  in_a_child([]() -> std::string {
    Pair pair;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const int next = ::dup(0);
    limit.rlim_cur = static_cast<rlim_t>(next);  // not one more
    ::close(next);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    EngineOptions options;
    options.loopback = pair.loopback;
    const auto more = Engine::open(options);
    if (more) return "an engine opened without a descriptor to be had";
    if (more.status().code() != ErrorCode::resource_exhausted) return "open: " + more.status().to_string();
    const auto memory = pair.left.engine().allocate(4096, Access::all);
    if (memory || memory.status().code() != ErrorCode::resource_exhausted)
      return "allocate: " + memory.status().to_string();
    const auto connected = pair.left.engine().connect("127.0.0.1:1", std::chrono::milliseconds(200));
    if (connected) return "connected without a descriptor";
    const auto id = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 64));
    if (!id || !pair.left.engine().wait(*id, kSoon)->status) return "what was open does not work any more";
    limit.rlim_cur += 20;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return Engine::open(options) ? "" : "it does not open though there are descriptors again";
  });
}

TEST(Bounded, OutOfMemoryForAllocateIsAnErrorThatNamesTheSize) {
  in_a_child([]() -> std::string {
    Pair pair;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1 << 20, 1 << 20};  // memory files count as files
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto memory = pair.left.engine().allocate(64 << 20, Access::all);
    if (memory) return "more memory than there is";
    if (memory.status().code() != ErrorCode::resource_exhausted) return memory.status().to_string();
    if (memory.status().message().find("67108864") == std::string::npos) return memory.status().to_string();
    if (pair.left.engine().metrics().regions != 1) return "a region was left behind";
    return pair.left.engine().allocate(1 << 16, Access::all) ? "" : "a small one does not work any more";
  });
}

}  // namespace
}  // namespace fairway::promises

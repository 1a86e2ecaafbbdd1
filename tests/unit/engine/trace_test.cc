// One write, from the call to its completion: twelve functions down and seven back, one hand-off between threads
// (docs/ARCHITECTURE.md prints the table). The engine and loopback are compiled into this program with
// -finstrument-functions, so that every function says when it is entered and left; what stood on the stack when each
// step began must be exactly what is written here. A step that is renamed, or a layer that is put between two of them,
// fails this test: then change both the table and this list, or take the layer out.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "fairway/fairway.h"

namespace trace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMost = 1 << 16;

struct Entered {
  std::array<void*, 12> stack;  // the innermost last
  std::size_t depth;
  pid_t thread;
};

std::atomic<bool> on{false};
std::atomic<std::size_t> count{0};
std::array<Entered, kMost> entered;
thread_local std::array<void*, kDeepest> stack;
thread_local std::size_t depth = 0;

}  // namespace trace

extern "C" [[gnu::no_instrument_function]] void __cyg_profile_func_enter(void* function, void*) {
  if (trace::depth < trace::kDeepest) trace::stack[trace::depth] = function;
  ++trace::depth;
  if (!trace::on.load(std::memory_order_relaxed) || trace::depth > trace::kDeepest) return;
  const std::size_t index = trace::count.fetch_add(1, std::memory_order_relaxed);
  if (index >= trace::kMost) return;
  trace::Entered& entry = trace::entered[index];
  entry.depth = std::min(trace::depth, entry.stack.size());
  std::memcpy(entry.stack.data(), trace::stack.data() + trace::depth - entry.depth, entry.depth * sizeof(void*));
  entry.thread = ::gettid();
}

extern "C" [[gnu::no_instrument_function]] void __cyg_profile_func_exit(void*, void*) {
  --trace::depth;
}

namespace fairway {
namespace {

// "fairway::engine::Worker::step(unsigned long)" -> "Worker::step"; empty for what has no name of its own.
std::string name_of(void* function) {
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != function) return {};
  int status = 0;
  char* demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : info.dli_sname;
  std::free(demangled);
  name = name.substr(0, name.find('('));
  for (const char* scope : {"fairway::", "engine::", "transport::", "loopback::"})
    if (name.rfind(scope, 0) == 0) name = name.substr(std::strlen(scope));
  return name;
}

struct Step {
  std::string path;  // from the step before it on this thread, outermost first
  pid_t thread;
};

// The first time that `name` was entered after `from`, with its callers out to `outermost`; on that thread, if not 0.
std::optional<Step> find(const std::string& name, const std::string& outermost, std::size_t& from, pid_t thread) {
  const std::size_t count = std::min(trace::count.load(), trace::kMost);
  for (std::size_t i = from; i < count; ++i) {
    const trace::Entered& entry = trace::entered[i];
    if (thread != 0 && entry.thread != thread) continue;
    if (name_of(entry.stack[entry.depth - 1]) != name) continue;
    std::string path;
    for (std::size_t k = entry.depth; k > 0; --k) {
      const std::string caller = name_of(entry.stack[k - 1]);
      if (caller.find("std::") == 0) continue;
      path = caller + (path.empty() ? "" : " > " + path);
      if (caller == outermost) break;
    }
    from = i + 1;
    return Step{path, entry.thread};
  }
  return std::nullopt;
}

// Two engines of one process with so many bytes each.
struct OneWrite : testing::Test {
  void join(std::size_t bytes) {
    EngineOptions options;
    options.loopback = make_loopback();
    options.transports = {"loopback"};  // another link's proof would stand in the path as well
    options.max_peers = 4;
    for (auto* engine : {&left, &right}) {
      auto opened = Engine::open(options);
      ASSERT_TRUE(opened) << opened.status().to_string();
      *engine = std::move(*opened);
    }
    const auto found = left->connect(right->address());
    ASSERT_TRUE(found) << found.status().to_string();
    peer = *found;
    from.assign(bytes, std::byte{7});
    to.assign(bytes, std::byte{0});
    local = *left->register_memory(from.data(), bytes, Access::none);
    const auto target = right->register_memory(to.data(), bytes, Access::write);
    remote = *left->import_region(peer, *right->describe(*target));
  }

  std::optional<Engine> left, right;
  PeerId peer;
  std::vector<std::byte> from, to;
  Region local;
  RemoteRegion remote;
};

TEST_F(OneWrite, TakesTwelveFunctionsDownSevenBackAndOneHandOff) {
  ASSERT_NO_FATAL_FAILURE(join(4096));
  trace::on = true;
  const auto id = left->write(peer, Extent{{local.id, 0, 4096}, {remote.id, 0}});
  const auto completion = left->wait(*id, std::chrono::seconds(20));
  trace::on = false;
  ASSERT_TRUE(completion && completion->status);
  ASSERT_EQ(to, from);
  ASSERT_LT(trace::count.load(), trace::kMost);

  struct Expected {
    const char* name;
    const char* outermost;
    const char* path;
  };
  // Worker::step stands in the paths only: a worker that is awake may have entered it before the write began.
  constexpr Expected kSteps[] = {
      {"Engine::write", "Engine::write", "Engine::write"},
      {"Worker::submit", "Engine::write", "Engine::write > Submissions::submit > Worker::submit"},
      {"route", "Worker::step",
       "Worker::step > Worker::pump_peers > Transfers::pump > Transfers::post_transfers > Transfers::move > route"},
      {"stripe", "Worker::step",
       "Worker::step > Worker::pump_peers > Transfers::pump > Transfers::post_transfers > Transfers::move > stripe"},
      {"Transfers::post_piece", "Worker::step",
       "Worker::step > Worker::pump_peers > Transfers::pump > Transfers::post_transfers > Transfers::move > "
       "Transfers::post_piece"},
      {"LoopbackTransport::post", "Worker::step",
       "Worker::step > Worker::pump_peers > Outbox::flush > LoopbackTransport::post"},
      {"Transfers::finish", "Worker::step",
       "Worker::step > Worker::poll_transports > Worker::handle > Transfers::on_slice > Transfers::piece_done > "
       "Transfers::advance > Transfers::finish"},
      {"Worker::deliver", "Worker::step", "Worker::step > Worker::deliver"},
  };
  std::set<std::string> functions;
  std::size_t from_here = 0;
  std::vector<pid_t> threads;
  for (const Expected& expected : kSteps) {
    // The target's worker takes the same steps at the same time: from the first one on it is that worker's thread.
    const bool handed_off = !threads.empty() && threads.back() != ::gettid();
    const auto step = find(expected.name, expected.outermost, from_here, handed_off ? threads.back() : 0);
    ASSERT_TRUE(step) << expected.name << " was not entered, or not in this order";
    EXPECT_EQ(step->path, expected.path);
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 3) {
      end = step->path.find(" > ", begin);
      functions.insert(step->path.substr(begin, end - begin));
    }
    threads.push_back(step->thread);
  }
  EXPECT_EQ(threads[0], ::gettid());
  EXPECT_EQ(threads[1], ::gettid());
  std::size_t hand_offs = 0;
  for (std::size_t i = 1; i < threads.size(); ++i) hand_offs += threads[i] != threads[i - 1];
  EXPECT_EQ(hand_offs, 1u);
  EXPECT_EQ(functions.size(), 20u);  // the transport's post() is one of them
}

// Once the way between two memories is known, a small one goes no further than its caller: no hand-off, no step.
TEST_F(OneWrite, OfAFewBytesIsDoneByItsCaller) {
  ASSERT_NO_FATAL_FAILURE(join(64));
  constexpr const char* kWay[] = {"Engine::write",           "Submissions::complete_now", "Worker::complete_now",
                                  "Transfers::move_at_once", "ShortPath::move",           "LoopbackTransport::move_now",
                                  "DirectPort::move_now"};
  for (int tries = 0;; ++tries) {  // the worker may be in its step
    ASSERT_LT(tries, 1000);
    to.assign(to.size(), std::byte{0});
    trace::count = 0;
    trace::on = true;
    const auto id = left->write(peer, Extent{{local.id, 0, 64}, {remote.id, 0}});
    const bool there = to == from;
    trace::on = false;
    const auto completion = left->wait(*id, std::chrono::seconds(20));
    ASSERT_TRUE(completion && completion->status);
    std::size_t from_here = 0;
    const auto step = find("DirectPort::move_now", "Engine::write", from_here, ::gettid());
    if (!step) continue;
    EXPECT_TRUE(there);
    std::size_t at = 0;
    for (const char* name : kWay) {
      at = step->path.find(name, at);
      ASSERT_NE(at, std::string::npos) << name << " is not in " << step->path;
    }
    EXPECT_EQ(step->path.find("Worker::step"), std::string::npos);
    return;
  }
}

// What a transport answers to it is another matter: this one takes messages by its target's thread.
TEST_F(OneWrite, ASmallMessageIsHandedOverByItsCaller) {
  ASSERT_NO_FATAL_FAILURE(join(64));
  constexpr const char* kWay[] = {"Submissions::submit", "Worker::start_now", "Transfers::start_now",
                                  "MessageSender::announce", "RecordSender::post_now"};
  std::array<PeerEvent, 1> event;
  while (right->poll_peer_events(event) == 0) std::this_thread::yield();
  const Region into = *right->register_memory(to.data(), to.size(), Access::none);
  for (int tries = 0;; ++tries) {  // the worker may be in its step
    ASSERT_LT(tries, 1000);
    const auto receive = right->receive(event[0].peer, 1, {into.id, 0, 64});
    trace::count = 0;
    trace::on = true;
    const auto id = left->send(peer, 1, {local.id, 0, 64});
    trace::on = false;
    for (const auto& [engine, transfer] : {std::pair(&*left, id), std::pair(&*right, receive)}) {
      const auto completion = engine->wait(*transfer, std::chrono::seconds(20));
      ASSERT_TRUE(completion && completion->status);
    }
    std::size_t from_here = 0;
    const auto step = find("RecordSender::post_now", "Submissions::submit", from_here, ::gettid());
    if (!step) continue;
    std::size_t at = 0;
    for (const char* name : kWay) {
      at = step->path.find(name, at);
      ASSERT_NE(at, std::string::npos) << name << " is not in " << step->path;
    }
    EXPECT_EQ(step->path.find("Worker::step"), std::string::npos);
    return;
  }
}

}  // namespace
}  // namespace fairway

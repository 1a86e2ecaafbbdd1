#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"

// verbs_work write|read|send|add|pages SIZE QUEUE_PAIRS TIMES [AT_ONCE]: so many operations of that size over verbs to
// another process, 64 at once (pages: TIMES pages of one request, scattered), for who counts what that takes. Says
// microseconds for each.
namespace {

using namespace fairway;
using control::ChildProcess;

constexpr std::uint64_t kMostAtOnce = 64;

[[noreturn]] void fail(const Status& why) {
  std::fprintf(stderr, "verbs_work: %s\n", why.to_string().c_str());
  std::exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) fail(result.status());
  return std::move(*result);
}

RequestOptions polled() {
  RequestOptions made;
  made.deliver = Deliver::to_poll;
  return made;
}

EngineOptions options(const char* device, std::uint32_t queue_pairs) {
  EngineOptions made;
  made.transports = {"verbs"};
  made.rdma.devices = {device};
  made.rdma.queue_pairs = queue_pairs;
  made.progress = Progress::caller;
  return made;
}

void serve(ChildProcess::Line& line, const std::string& work, std::uint64_t size, std::uint64_t bytes,
           std::uint32_t queue_pairs, std::uint64_t times, std::uint64_t depth) {
  ::prctl(PR_SET_NAME, "far");
  Engine engine = need(Engine::open(options("rxe1", queue_pairs)));
  const Region memory = need(engine.allocate(bytes, Access::all));
  if (const Status status = engine.publish("memory", memory); !status) fail(status);
  line.write(engine.address());
  std::array<PeerEvent, 1> event;
  const auto wait = [&] {
    while (engine.poll_peer_events(event) == 0) (void)engine.wait_peer_event(std::chrono::seconds(1));
  };
  while (work != "send") wait();  // until the other process ends this one
  do wait();
  while (event[0].kind != PeerEvent::Kind::up);
  std::array<Completion, 16> done;
  std::uint64_t posted = 0;
  for (std::uint64_t ended = 0; ended < times;) {
    for (; posted < times && posted - ended < depth; ++posted)
      (void)need(engine.receive(event[0].peer, 1, {memory.id, posted % depth * size, size}, polled()));
    ended += engine.poll(done);
  }
  for (;;) wait();
}

}  // namespace

int main(int count, char** words) {
  if (count != 5 && count != 6)
    return std::fprintf(stderr, "verbs_work write|read|send|add|pages SIZE QUEUE_PAIRS TIMES [AT_ONCE]\n"), 2;
  const std::string work = words[1];
  const std::uint64_t size = std::strtoull(words[2], nullptr, 10), times = std::strtoull(words[4], nullptr, 10);
  const auto queue_pairs = static_cast<std::uint32_t>(std::strtoul(words[3], nullptr, 10));
  const bool pages = work == "pages";
  const std::uint64_t depth = count == 6 ? std::strtoull(words[5], nullptr, 10) : kMostAtOnce;
  if (depth == 0 || depth > kMostAtOnce) return std::fprintf(stderr, "verbs_work: AT_ONCE is 1 to 64\n"), 2;
  const std::uint64_t bytes = size * (pages ? times : depth);
  ChildProcess far([&](ChildProcess::Line& line) { serve(line, work, size, bytes, queue_pairs, times, depth); });
  const std::string address = far.read();
  Engine engine = need(Engine::open(options("rxe0", queue_pairs)));
  const PeerId peer = need(engine.connect(address));
  const RemoteRegion remote = need(engine.lookup(peer, "memory"));
  const Region memory = need(engine.allocate(bytes, Access::all));
  std::memset(memory.address, 1, bytes);
  std::vector<std::uint64_t> index(pages ? times : 0);
  for (std::uint64_t i = 0; i < index.size(); ++i) index[i] = i * 7919 % times;

  std::this_thread::sleep_for(std::chrono::seconds(1));  // both engines look at the machine in their first moments
  const auto begin = std::chrono::steady_clock::now();
  std::array<Completion, 16> done;
  const std::uint64_t requests = pages ? 1 : times;
  std::uint64_t posted = 0;
  for (std::uint64_t ended = 0; ended < requests;) {
    for (; posted < requests && posted - ended < depth; ++posted) {
      const std::uint64_t at = posted % depth * size;
      const Slice here{memory.id, at, size};
      if (pages)
        (void)need(engine.write(peer, Paged{memory.id, remote.id, size, size, size, index, index}, polled()));
      else if (work == "write")
        (void)need(engine.write(peer, Extent{here, {remote.id, at}}, polled()));
      else if (work == "read")
        (void)need(engine.read(peer, Extent{here, {remote.id, at}}, polled()));
      else if (work == "send")
        (void)need(engine.send(peer, 1, here, polled()));
      else
        (void)need(engine.fetch_add(peer, {remote.id, 0}, 1, polled()));
    }
    const std::size_t some = engine.poll(done);
    for (std::size_t i = 0; i < some; ++i)
      if (!done[i].status) fail(done[i].status);
    ended += some;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  std::printf("took %.3f us\n", took.count() / static_cast<double>(times));
  std::fflush(stdout);
  return 0;
}

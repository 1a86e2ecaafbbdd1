#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "engine/open.h"
#include "support/alone.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

// verbs_path ours|bare write|read|send SIZE QUEUE_PAIRS TIMES: so many operations of that size, 64 at once, over NICs
// that stand in and carry out each request as it is posted, for who counts instructions (count_instructions). Both ends
// are this one thread's. `bare` is the loop of ib_*_bw around the same NICs: a request and a doorbell for each
// operation, each with a completion, sixteen of them a look.
namespace {

using namespace fairway;
namespace nic = support::nic;
namespace abi = transport::verbs::abi;

constexpr std::uint64_t kDepth = 64;

struct Work {
  std::string kind;
  std::uint64_t size = 0;
  std::uint32_t pairs = 1;
  std::uint64_t times = 0;
};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "verbs_path: %s\n", why.c_str());
  std::exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) fail(result.status().to_string());
  return std::move(*result);
}

// ---- ours ----

Engine open(Runtime& runtime, const char* device, std::uint32_t pairs) {
  EngineOptions options;
  options.transports = {"verbs"};
  options.progress = Progress::caller;
  return need(EngineAccess::open(options, runtime, [&](transport::RegionTable& regions, Runtime& inner) {
    transport::VerbsOptions verbs;
    verbs.library = nic::library();
    verbs.rdma.devices = {device};
    verbs.rdma.queue_pairs = pairs;
    return support::alone(transport::open_verbs_transport(regions, inner, verbs));
  }));
}

void ours(const Work& work) {
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  Engine far = open(runtime, "nic1", work.pairs), near = open(runtime, "nic0", work.pairs);
  const Region to = need(far.allocate(work.size * kDepth, Access::all));
  const Region from = need(near.allocate(work.size * kDepth, Access::all));
  if (const Status status = far.publish("memory", to); !status) fail(status.to_string());
  std::atomic<bool> met{false};
  std::thread steps([&] {
    while (!met.load()) (void)far.poll({});
  });
  const PeerId peer = need(near.connect(far.address(), std::chrono::minutes(2)));
  const RemoteRegion remote = need(near.lookup(peer, "memory"));
  for (std::size_t up = 0; up < work.pairs;) {
    (void)near.poll({});
    const Metrics metrics = near.metrics();
    up = static_cast<std::size_t>(
        std::count_if(metrics.links.begin(), metrics.links.end(), [](const auto& link) { return link.up; }));
  }
  std::array<PeerEvent, 1> event;
  while (far.poll_peer_events(event) == 0) (void)near.poll({});
  met.store(true);
  steps.join();

  RequestOptions polled;
  polled.deliver = Deliver::to_poll;
  std::array<Completion, 16> done;
  std::uint64_t posted = 0, taken = 0;
  for (std::uint64_t ended = 0, received = 0; ended < work.times || (work.kind == "send" && received < work.times);) {
    for (; work.kind == "send" && taken < work.times && taken - received < kDepth; ++taken)
      (void)need(far.receive(event[0].peer, 1, {to.id, taken % kDepth * work.size, work.size}, polled));
    for (; posted < work.times && posted - ended < kDepth; ++posted) {
      const std::uint64_t at = posted % kDepth * work.size;
      const Slice here{from.id, at, work.size};
      if (work.kind == "send")
        (void)need(near.send(peer, 1, here, polled));
      else if (work.kind == "read")
        (void)need(near.read(peer, Extent{here, {remote.id, at}}, polled));
      else
        (void)need(near.write(peer, Extent{here, {remote.id, at}}, polled));
    }
    const std::size_t some = near.poll(done);
    for (std::size_t i = 0; i < some; ++i)
      if (!done[i].status) fail(done[i].status.to_string());
    ended += some;
    if (work.kind == "send") received += far.poll(done);
  }
}

// ---- bare ----

struct Side {
  abi::Context* context = nullptr;
  abi::ProtectionDomain* domain = nullptr;
  abi::CompletionQueue* queue = nullptr;
  abi::MemoryRegion* region = nullptr;
  std::vector<std::byte> memory;
  std::vector<abi::QueuePair*> pairs;
};

Side side(const transport::verbs::Library& library, int which, const Work& work) {
  Side made;
  int count = 0;
  abi::Device** const list = library.list(&count);
  made.context = library.open_device(list[which]);
  library.free_list(list);
  made.domain = library.alloc_domain(made.context);
  made.queue = library.create_queue(made.context, 4096, nullptr, nullptr, 0);
  made.memory.resize(work.size * kDepth);
  made.region = library.register_region(made.domain, made.memory.data(), made.memory.size(),
                                        abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead);
  for (std::uint32_t i = 0; i < work.pairs; ++i) {
    abi::QueuePairOptions options{};
    options.send_queue = options.receive_queue = made.queue;
    options.type = abi::kReliable;
    made.pairs.push_back(library.create_pair(made.domain, &options));
  }
  return made;
}

void take_next(const Side& at, std::uint64_t pair, std::uint64_t number, std::uint64_t size) {
  abi::Gather place{reinterpret_cast<std::uintptr_t>(at.memory.data()) + number % kDepth * size,
                    static_cast<std::uint32_t>(size), at.region->lkey};
  abi::ReceiveRequest request{pair, nullptr, &place, 1};
  abi::ReceiveRequest* bad = nullptr;
  if (at.context->post_receive(at.pairs[pair], &request, &bad) != 0) fail("a receive was not taken");
}

void bare(const Work& work) {
  const auto library = nic::library();
  Side near = side(*library, 0, work), far = side(*library, 1, work);
  for (std::uint32_t i = 0; i < work.pairs; ++i) {
    for (auto [one, other] : {std::pair(near.pairs[i], far.pairs[i]), std::pair(far.pairs[i], near.pairs[i])}) {
      abi::QueuePairState state{};
      state.peer_number = other->number;
      state.state = abi::kReadyToSend;
      if (library->modify_pair(one, &state, abi::kMaskState | abi::kMaskPeer) != 0)
        fail("a queue pair cannot be connected");
    }
  }
  const bool sends = work.kind == "send";
  const std::uint64_t each = kDepth / work.pairs;
  std::vector<std::uint64_t> posted(work.pairs), ended(work.pairs);
  if (sends)
    for (std::uint32_t i = 0; i < work.pairs; ++i)
      for (std::uint64_t k = 0; k < each; ++k) take_next(far, i, k, work.size);
  std::array<abi::WorkCompletion, 16> some;
  std::uint64_t all = 0, done = 0, heard = 0;
  while (done < work.times || (sends && heard < work.times)) {
    for (std::uint32_t i = 0; i < work.pairs; ++i) {
      while (all < work.times && posted[i] - ended[i] < each) {
        const std::uint64_t at = posted[i]++ % kDepth * work.size;
        abi::Gather place{reinterpret_cast<std::uintptr_t>(near.memory.data()) + at,
                          static_cast<std::uint32_t>(work.size), near.region->lkey};
        abi::SendRequest request{};
        request.id = i;
        request.gather = &place;
        request.gather_count = 1;
        request.opcode = sends ? abi::kSendImmediate : work.kind == "read" ? abi::kRead : abi::kWrite;
        request.flags = abi::kSignaled;
        request.remote.rdma = {reinterpret_cast<std::uintptr_t>(far.memory.data()) + at, far.region->rkey};
        abi::SendRequest* bad = nullptr;
        if (near.context->post_send(near.pairs[i], &request, &bad) != 0) fail("a request was not taken");
        ++all;
      }
    }
    const int count = near.context->poll(near.queue, static_cast<int>(some.size()), some.data());
    for (int i = 0; i < count; ++i) {
      if (some[static_cast<std::size_t>(i)].status != abi::kSuccess) fail("a request failed");
      ++ended[some[static_cast<std::size_t>(i)].id];
      ++done;
    }
    const int came = sends ? far.context->poll(far.queue, static_cast<int>(some.size()), some.data()) : 0;
    for (int i = 0; i < came; ++i) take_next(far, some[static_cast<std::size_t>(i)].id, heard++, work.size);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return std::fprintf(stderr, "verbs_path ours|bare write|read|send SIZE QUEUE_PAIRS TIMES\n"), 2;
  const Work work{words[2], std::strtoull(words[3], nullptr, 10),
                  static_cast<std::uint32_t>(std::strtoul(words[4], nullptr, 10)),
                  std::strtoull(words[5], nullptr, 10)};
  (words[1] == std::string("bare") ? bare : ours)(work);
  std::fflush(stdout);
  std::_Exit(0);  // what ends is of no interest
}

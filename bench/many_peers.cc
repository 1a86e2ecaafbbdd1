// What one write of 8 bytes costs when 1, 100 and 10,000 peers are connected and one of them is active. The cost must
// not grow with the others. Usage: many_peers [writes per measurement [peers...]]
//
// Only workers, their peers and their tables are real: two workers of this process, stepped by one thread, have all the
// sessions between them. Control is two function calls, and the transport under them copies at once and knows no links
// that have nothing to say, so that what is measured is the engine. It includes the submission, both workers' steps and
// the completion. Links are not proven. It stands on the engine's insides, unlike its neighbours: ten thousand engines
// of one process would be ten thousand control threads.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "engine/workers.h"
#include "sys/system_runtime.h"
#include "transport/command.h"
#include "transport/transport.h"

namespace {

using namespace fairway;
using transport::EventKind;

// One side's end of all links. Whatever is posted is done before the next poll.
class CopyTransport final : public transport::Transport {
 public:
  explicit CopyTransport(transport::RegionTable& regions) : Transport("copy"), regions_(regions) {
    transport::Device& device = devices_.emplace_back();
    device.name = "copy";
    transport::Capabilities& can = device.capabilities;
    using transport::Op;
    can.operations = static_cast<std::uint8_t>(Op::write) | static_cast<std::uint8_t>(Op::message);
    can.queue_depth = 64;
    can.visible_when_done = true;
  }
  void pair_with(CopyTransport& far) { far_ = &far; }

  Status attach(Task&) override { return {}; }
  Status connect(transport::PeerIndex peer, transport::Role) override {
    transport::Event& up = add(EventKind::link_up);
    up.peer = peer;
    up.link = {peer, 1};
    up.value = peer;
    return {};
  }
  void exchange(transport::PeerIndex, std::span<const std::byte>) override {}
  void disconnect(transport::PeerIndex) override {}
  Result<transport::RegisteredMemory> register_memory(const Region& memory, const MemorySource&) override {
    return transport::RegisteredMemory{transport::handle_of(memory.id), {}};
  }
  void deregister(std::uint64_t handle) override { add(EventKind::deregistered).value = handle; }
  Result<std::uint64_t> import(transport::PeerIndex, const transport::RemoteMemory& memory,
                               std::span<const transport::KeyBytes>) override {
    return transport::handle_of(memory.id);
  }
  void release(std::uint64_t) override {}
  transport::Reach reach(transport::LinkId, std::uint64_t, std::uint64_t, std::string*) override {
    return transport::Reach::yes;
  }
  std::size_t post(std::span<const transport::Slice> slices) override {
    for (const transport::Slice& slice : slices) {
      transport::Event& done = add(EventKind::done);
      done.token = slice.token;
      if (slice.op == transport::Op::message) {
        transport::Event& message = far_->add(EventKind::message);
        message.link = slice.link;
        far_->messages_.emplace_back(slice.local, slice.local + slice.length);
        message.bytes = far_->messages_.back();
        continue;
      }
      transport::RegionTable::Resolved at;
      const ErrorCode code = far_->regions_.resolve(transport::region_of(slice.remote_handle), slice.remote_offset,
                                                    slice.length, Access::write, at);
      if (code != ErrorCode::ok) std::abort();
      std::memcpy(at.address, slice.local, slice.length);
    }
    return slices.size();
  }
  std::size_t poll(std::span<transport::Event> events, Time) override {
    if (taken_ == events_.size()) {
      events_.clear();
      messages_.clear();
      taken_ = 0;
    }
    std::size_t count = 0;
    while (count < events.size() && taken_ < events_.size()) events[count++] = events_[taken_++];
    return count;
  }
  void fence(transport::LinkId link) override { add(EventKind::fenced).link = link; }
  void reconnect(transport::LinkId) override {}
  void cancel(transport::SliceToken) override {}
  void close() override {}

 private:
  transport::Event& add(EventKind kind) {
    events_.emplace_back().kind = kind;
    return events_.back();
  }

  transport::RegionTable& regions_;
  CopyTransport* far_ = nullptr;
  std::vector<transport::Event> events_;
  std::size_t taken_ = 0;
  std::vector<std::vector<std::byte>> messages_;
};

EngineOptions options_for(std::uint32_t peers) {
  EngineOptions options;
  options.progress = Progress::caller;
  options.max_peers = peers;
  options.max_remote_regions = 2 * peers + 64;
  options.prove_paths = false;
  return options;
}

// The half of an engine that moves bytes.
struct Half final : engine::SessionControl {
  Half(std::uint32_t count, Runtime& on) : tables(options_for(count), on, true), machine(on.executor, nullptr, [] {}) {
    const auto one = [this](transport::RegionTable& regions, Runtime&) {
      auto made = std::make_unique<CopyTransport>(regions);
      transport = made.get();
      std::vector<std::unique_ptr<transport::Transport>> all;
      all.push_back(std::move(made));
      return Result(std::move(all));
    };
    if (!waiting.open() || !workers.open(one, waiting, *this, machine)) std::exit(1);
    worker = &workers[0];
  }
  void tell(control::SessionId session, const std::vector<std::byte>& bytes) override { on_tell(session, bytes); }
  void drop(control::SessionId, const Status& why) override { std::fprintf(stderr, "%s\n", why.to_string().c_str()); }
  void step() { (void)worker->step(tables.runtime.clock.now()); }

  engine::EngineTables tables;
  engine::Workers workers{tables};
  engine::Waiting waiting{tables.runtime, tables.options.progress, workers};
  engine::MachineDiscovery machine;
  std::function<void(control::SessionId, const std::vector<std::byte>&)> on_tell;
  CopyTransport* transport = nullptr;
  engine::Worker* worker = nullptr;
};

// Nanoseconds of this thread's CPU for one write: the median of batches.
double measure(Runtime& runtime, std::uint32_t count, std::uint32_t writes) {
  Half left(count, runtime), right(count, runtime);
  left.transport->pair_with(*right.transport);
  right.transport->pair_with(*left.transport);
  const auto carry = [](Half& to) {
    return [&to](control::SessionId session, const std::vector<std::byte>& bytes) {
      const auto info = to.tables.peers.find_session(session);
      if (engine::Peer* peer = info ? to.worker->peer_of(info->id) : nullptr) peer->on_message(bytes);
    };
  };
  // What one side says before the other knows the session is kept until it does.
  std::vector<std::pair<control::SessionId, std::vector<std::byte>>> early;
  left.on_tell = [&](control::SessionId session, const std::vector<std::byte>& bytes) {
    early.emplace_back(session, bytes);
  };
  right.on_tell = carry(left);
  PeerId active;
  for (control::SessionId session = 1; session <= count; ++session) {
    control::PeerInfo peer;
    peer.name = std::to_string(session);
    peer.initiated_here = true;
    const PeerId here = *left.tables.peers.add(session, peer);
    peer.initiated_here = false;
    const PeerId there = *right.tables.peers.add(session, peer);
    left.worker->add_peer(here, session, peer);
    right.worker->add_peer(there, session, peer);
    for (const auto& [to, bytes] : early) carry(right)(to, bytes);
    early.clear();
    if (session == (count + 1) / 2) active = here;
  }
  left.on_tell = carry(right);
  for (std::uint32_t i = 0; i < 64 + count / 8; ++i) {
    left.step();
    right.step();
  }

  std::vector<std::byte> from(8, std::byte{7}), to(8);
  const auto add = [](Half& half, std::vector<std::byte>& memory, Access access) {
    const RegionId id = *half.tables.regions.add(memory.data(), memory.size(), MemoryKind::host, access);
    const Region region{id, memory.data(), memory.size(), MemoryKind::host, access};
    half.worker->locals().add(id, half.worker->locals().register_with_all(region, {}), {}, {});
    return id;
  };
  const RegionId local = add(left, from, Access::none), target = add(right, to, Access::write);
  Status error;
  const RemoteRegionId remote = left.worker->remotes().import(left.worker->peer_of(active)->owner(),
                                                              right.worker->locals().describe(target), error);
  if (!error) std::exit(1);
  const auto write = [&] {
    RequestOptions wanted;
    wanted.deliver = Deliver::to_poll;
    const std::uint32_t slot = left.tables.transfers.acquire();
    left.tables.transfers[slot].begin(
        {Operation::write, active, Extent{{local, 0, 8}, {remote, 0}}, {}, 0, 0, 0, wanted}, runtime.clock.now());
    left.worker->submit(slot);
    for (std::uint32_t done = 0;;) {
      left.step();
      right.step();
      if (!left.tables.completions.pop(done)) continue;
      const TransferId id = left.tables.transfers.id(done);
      if (!left.tables.transfers.claim(id, engine::Stage::done_to_poll) ||
          !left.tables.transfers[done].completion.status)
        std::exit(1);
      left.tables.transfers.release(done);
      return;
    }
  };
  for (int i = 0; i < 2000; ++i) write();
  constexpr std::uint32_t kBatch = 50;
  std::vector<double> batches;
  for (std::uint32_t done = 0; done < writes; done += kBatch) {
    const auto began = std::chrono::steady_clock::now();
    for (std::uint32_t i = 0; i < kBatch; ++i) write();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    batches.push_back(took.count() / kBatch);
  }
  if (to != from) std::exit(1);
  std::nth_element(batches.begin(), batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 2), batches.end());
  const double median = batches[batches.size() / 2];
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  const auto writes = static_cast<std::uint32_t>(argc > 1 ? std::max(50, std::atoi(argv[1])) : 20'000);
  std::vector<std::uint32_t> counts;
  for (int i = 2; i < argc; ++i) counts.push_back(static_cast<std::uint32_t>(std::max(1, std::atoi(argv[i]))));
  if (counts.empty()) counts = {1, 100, 10'000};
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  std::printf("%10s %16s\n", "peers", "ns a write, p50");
  for (const std::uint32_t count : counts) std::printf("%10u %16.0f\n", count, measure(runtime, count, writes));
  return 0;
}

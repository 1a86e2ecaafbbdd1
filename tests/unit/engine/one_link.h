#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/links/rates.h"
#include "engine/links/routes.h"
#include "engine/messages/record_sender.h"
#include "engine/tables/slices.h"
#include "engine/transfers/short_path.h"
#include "fake_peer.h"
#include "fake_wire.h"

namespace fairway::engine {

// Whoever inspects the machine is the test.
struct NoThreads final : Executor {
  Result<std::unique_ptr<Task>> start(const TaskOptions&, Stepper&) override {
    ++started;
    return Status(ErrorCode::unsupported, {});
  }
  Result<std::unique_ptr<Signal>> make_signal() override { return Status(ErrorCode::unsupported, {}); }
  void wait(std::atomic<std::uint32_t>&, std::uint32_t, Time) override {}
  void wake_all(std::atomic<std::uint32_t>&) override {}
  int started = 0;
};

// A peer with one link by a fake wire, proven: its links, routes, rates and records, without an engine. Of other wires
// the links are still being made, until raise().
template <class APeer>
struct OneLinkOf : testing::Test, LinkOwner {
  explicit OneLinkOf(std::size_t wires = 1, MachineDiscovery::Source model = nullptr)
      : OneLinkOf(make(wires), std::move(model)) {}
  explicit OneLinkOf(WorkerTables::Transports wires, MachineDiscovery::Source model = nullptr)
      : peer(std::move(wires)), machine(executor, std::move(model), [] {}) {
    std::vector<std::string> names;
    for (const auto& transport : transports) names.emplace_back(transport->name());
    links.connect(names, transport::Role::initiator, {}, 0);
    raise(0);
    local = *peer.local.add(mine.data(), mine.size(), MemoryKind::host, Access::none);
    locals.add(local, locals.register_with_all({}, {}), {}, {});
    remote = import(1);
  }
  static WorkerTables::Transports make(std::size_t wires) {
    WorkerTables::Transports made;
    for (const char* name : {"wire", "cable"})
      if (made.size() < wires) made.push_back(std::make_unique<FakeWire>(name));
    return made;
  }
  FakeWire& wire(std::size_t i = 0) { return static_cast<FakeWire&>(*transports[i]); }
  void raise(std::uint16_t transport) {
    transport::Event event;
    event.link = {0, 1};
    event.value = 71;
    links.on_link_up(transport, event);
  }
  RemoteRegionId import(std::uint32_t slot, MemoryKind kind = MemoryKind::host) {
    Description description;
    description.region = {slot, 1};
    description.size_bytes = mine.size();
    description.kind = kind;
    description.access = Access::all;
    Status error;
    return remotes.import(owner, description, error);
  }
  Request write(std::uint64_t length, std::uint64_t offset = 0) const {
    Request request;
    request.peer = FakePeer::kId;
    request.layout = Extent{{local, offset, length}, {remote, offset}};
    return request;
  }

  void link_up(std::uint8_t) override {}
  void link_ready(Link&) override { routes.link_changed(true); }
  void link_lost(Link&, bool was_ready) override { routes.link_changed(was_ready); }
  void epoch_closed(std::uint8_t, bool) override {}
  void no_link(const std::string&) override {}
  void link_slow(const Link&, std::string detail) override { slow.push_back(std::move(detail)); }
  void tell(const LinkClosed&) override {}

  APeer peer;
  const WorkerTables::Transports& transports = peer.tables.transports;
  NoThreads executor;
  CountingRng rng;
  LocalRegions& locals = peer.tables.locals;
  RemoteRegions& remotes = peer.tables.remotes;
  ScratchMemory scratch{locals, 4, kMaxLinks* kScratchBytes};
  SliceTable& slices = peer.tables.slices;
  const RegionOwner& owner = peer.owner();
  MachineDiscovery machine;
  GpuRates gpus{machine};
  std::vector<std::uint32_t>& untaken = peer.untaken;
  Outbox& outbox = peer.tables.outbox;
  LinkSet links{peer, *this, scratch, rng, PeerClock(false, peer.time), kSecond, false};
  Routes routes{peer, links};
  std::vector<std::string> slow;  // what users are told of links that are
  LinkRates rates{peer, *this, links, machine, gpus};
  struct StillClock final : Clock {
    Time now() override { return ++time; }
    std::uint64_t unix_ns() override { return 0; }
    Time time = 0;
  } clock;
  ShortPath short_path{peer, links, routes, clock};
  RecordSender records{peer, links, routes, true};
  std::vector<std::byte> mine = std::vector<std::byte>(1 << 20, std::byte{4});
  RegionId local;
  RemoteRegionId remote;
};

using OneLink = OneLinkOf<FakePeer>;
struct TwoWires : OneLink {  // the cable's link is not up yet
  TwoWires() : OneLink(2) {}
};

}  // namespace fairway::engine

#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "transport/handles.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {

// The contract's state machine: peers, links and their epochs, handles. Each link is a lane (lane.h) between one port
// here and one of the peer's. Belongs to one worker's thread, as the contract says.
//   transport.cc  using lanes
//   connect.cc    making them, bringing them back, letting peers go
class VerbsTransport final : public Transport {
 public:
  VerbsTransport(RegionTable& regions, Runtime& runtime, VerbsOptions options);
  ~VerbsTransport() override { close(); }

  std::string_view name() const override { return "verbs"; }
  Status probe() override;
  std::span<const Device> devices() const override { return devices_; }
  Status attach(Task& task) override;

  Status connect(PeerIndex peer, Role role) override;
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void disconnect(PeerIndex peer) override;

  Result<RegisteredMemory> register_memory(const MemoryDescription& memory) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory,
                               std::span<const std::vector<std::byte>> keys) override;
  void release(std::uint64_t remote_handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override { return timer_; }
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void cancel(SliceToken token) override;
  std::string way(std::uint64_t remote_handle) const override;
  Costs costs() const override;
  bool prepare_sleep() override;
  void close() override;

 private:
  // The initiator opens, the acceptor waits for that; accepted: its queue pair listens, the initiator's maybe not yet.
  enum class LinkState : std::uint8_t { free, opening, waiting, accepted, up, down, fenced };
  struct Link {
    LinkId id;
    LinkState state = LinkState::free;
    PeerIndex peer = 0;
    std::uint16_t index = 0;    // within the session, equal at both ends
    std::uint32_t attempt = 0;  // grows with each new queue pair, equal at both ends
    std::uint8_t port = 0;      // of ports_
    std::uint8_t peer_port = 0;
    PortAddress address;  // the peer's
    std::unique_ptr<Lane> lane;
    std::uint32_t initiator_number = 0;  // its queue pair
    Endpoint held;                       // at the acceptor an attempt that came before reconnect()
    std::uint32_t held_attempt = 0;
    Time deadline = kNever;  // of an attempt
    Time again_at = kNever;  // at the initiator, the next one
    Time pause = 0;          // between attempts
    bool rings = false;      // it is in ringing_
  };
  struct Peer {
    Role role = Role::initiator;
    bool failed = false;  // stays known, without links, until disconnect()
    std::array<std::byte, kTokenBytes> token{};
    std::vector<std::uint32_t> slots;  // of links_, by index
    bool was_up = false;
    std::string reason;  // of the last link that could not be had
  };
  struct Remote {  // of an imported region
    std::uint64_t size_bytes = 0;
    Access access = Access::none;
    std::vector<Key> keys;  // by the owner's port
  };
  struct Ending {  // memory that slices still use
    std::uint64_t handle = 0;
    Time deadline = kNever;
  };

  // connect.cc
  void plan(PeerIndex index, Peer& peer, const Handshake& hello);
  void accept_plan(PeerIndex index, Peer& peer, const Handshake& plan);
  void add_link(PeerIndex peer_index, Peer& peer, std::uint8_t port, std::uint8_t peer_port,
                const PortAddress& address);
  Status make_lane(Link& link);
  void open(Link& link);
  void hear_open(Link& link, const Handshake& message);
  void accept(Link& link, const Endpoint& theirs, std::uint32_t attempt);
  void hear_accept(Link& link, const Handshake& message);
  void hear_closed(Link& link, const Handshake& message);
  void open_failed(Link& link, const Status& why);
  void link_is_up(Link& link);
  void fail_peer(PeerIndex index, Peer& peer, Status status, bool tell);
  void say(PeerIndex peer, const Handshake& message);
  void say(const Link& link, Handshake::Kind kind);
  void look_at_deadlines(Time now);

  // transport.cc
  Link* find(LinkId id);
  ErrorCode check(const Link& link, const Slice& slice, Command& out, const Registration*& local, Key& remote);
  static bool remote_fits(const Slice& slice, const Remote& remote);
  void look_at_ports(Time now);
  void end_memory(Time now);
  bool memory_is_free(std::uint64_t handle);

  RegionTable& regions_;
  Runtime& runtime_;
  const VerbsOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Device> devices_;  // theirs
  Task* task_ = nullptr;
  Inbox inbox_;
  Registrations registrations_;
  std::unordered_map<PeerIndex, Peer> peers_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> up_;       // slots of links that are up or down, not yet fenced
  std::vector<std::uint32_t> ringing_;  // slots of links that the slices being posted go to
  std::vector<Ending> endings_;
  ImportTable<Remote> imports_;
  std::size_t next_lane_ = 0;  // polled first, in turn
  bool armed_ = false;         // completions may have announced themselves
  Time timer_ = kNever;
  Time ports_at_ = 0;  // the next look for what befell the ports: a system call, so not in every poll
  bool closed_ = false;
};

}  // namespace fairway::transport::verbs

#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/loopback/handshake.h"
#include "transport/loopback/loopback.h"
#include "transport/optional_calls.h"

namespace fairway::transport::loopback {

// The contract's state machine: peers, links and their epochs, handles, events. The wire moves the bytes. Owner: the
// worker.
class LoopbackTransport final : public Transport, public FlushesWrites, public MovesAtOnce {
 public:
  LoopbackTransport(std::shared_ptr<Loopback> loopback, RegionTable& regions, Runtime& runtime);
  ~LoopbackTransport() override { close(); }

  Status attach(Task& task) override;

  Status connect(PeerIndex peer, Role role) override;
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void disconnect(PeerIndex peer) override;

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  void release(std::uint64_t remote_handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  AtOnce move_now(const SmallMove& move) override;
  AtOnce send_now(LinkId id, std::span<const std::byte> head, std::span<const std::byte> tail) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override { return retry_at_; }
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId, std::uint64_t, std::uint64_t, std::string*) override { return Reach::yes; }
  Status flush(std::uint64_t) override {
    wire_.flush();
    return {};
  }
  bool prepare_sleep() override;
  void close() override;

 private:
  enum class LinkState : std::uint8_t { free, offering, offered, up, down, fencing, fenced, wanted };
  struct Link {
    LinkId id;
    LinkState state = LinkState::free;
    PeerIndex peer = 0;
    DeviceIndex device = 0;
    std::uint16_t index = 0;       // within the session, equal at both ends
    std::uint32_t attempt = 0;     // counts the offers, equal at both ends
    std::uint64_t held_offer = 0;  // an offer that came before reconnect()
    std::uint32_t held_attempt = 0;
    std::uint32_t domain_epoch = 0;  // of its device's fence domain, when it came up
    std::unique_ptr<Port> port;
  };
  struct Peer {
    Role role = Role::initiator;
    bool got_hello = false;  // acceptor
    bool leaving = false;    // disconnect() was called: forgotten once its links are fenced
    bool failed = false;     // stays known, without links, until disconnect()
    std::uint16_t links = 0;
    std::vector<std::uint32_t> slots;  // of links_, by index; kNoSlot: not made yet
  };
  struct Queued {
    Event event;
    std::vector<std::byte> bytes;
  };
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

  // connect.cc: making links
  void accept_hello(PeerIndex index, Peer& peer, const Handshake& hello);
  void accept_offer(PeerIndex index, Peer& peer, const Handshake& offer);
  void accept_attached(PeerIndex index, Peer& peer, const Handshake& attached);
  void offer_link(Link& link);
  void attach_link(Link& link, std::uint64_t offer, std::uint32_t attempt);
  void link_is_up(Link& link);
  void retry_offers(Time now);
  Link& make_link(PeerIndex peer_index, Peer& peer, std::uint16_t index);
  void send_handshake(PeerIndex peer, const Handshake& message);
  void fail_peer(PeerIndex index, Peer& peer, Status status, bool tell);
  void forget_gone_peers();
  std::uint64_t random();

  // transport.cc: using them
  Link* find(LinkId id);
  void end_fence_domain(const Link& fenced);
  Command prepare(const Link& link, const Slice& slice);
  std::size_t poll_link(Link& link, std::span<Event> events, Time now, std::uint64_t& budget);
  std::size_t poll_ready(std::span<Event> events, Time now, std::uint64_t& budget);
  std::size_t take_queued(std::span<Event> events);
  void finish_deregistrations();

  const std::shared_ptr<Loopback> loopback_;
  Wire& wire_;
  RegionTable& regions_;
  Runtime& runtime_;
  const std::shared_ptr<Doorbell> doorbell_;
  std::unordered_map<PeerIndex, Peer> peers_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> domain_epochs_;  // by device
  ImportTable<> imports_;
  std::deque<Queued> queued_;                   // rare events: of connecting, failing and deregistering
  std::vector<std::vector<std::byte>> lent_;    // bytes of the last poll's events
  std::vector<std::unique_ptr<Port>> retired_;  // kept for messages in the last poll's events
  struct Touched {                              // by its peer, when the deregistration began
    LinkId link;
    std::uint64_t word = 0;
  };
  struct Deregistration {
    std::uint64_t handle = 0;
    std::vector<Touched> touches;
  };
  std::vector<Deregistration> deregistering_;
  std::size_t next_link_ = 0;                  // the link to poll first
  std::vector<std::uint32_t> ready_, polled_;  // slots of links_, of a wire that tells_ready()
  Time retry_at_ = kNever;
  bool peers_leaving_ = false;
  bool closed_ = false;
};

}  // namespace fairway::transport::loopback

#pragma once

#include <memory>
#include <vector>

#include "core/runtime.h"
#include "transport/linked_transport.h"
#include "transport/loopback/handshake.h"
#include "transport/loopback/loopback.h"
#include "transport/optional_calls.h"

namespace fairway::transport::loopback {

enum class LinkState : std::uint8_t { free, offering, offered, up, down, fencing, fenced, wanted };

struct Link : LinkOf<LinkState> {
  std::uint64_t held_offer = 0;  // an offer that came before reconnect()
  std::uint32_t held_attempt = 0;
  std::uint32_t domain_epoch = 0;  // of its device's fence domain, when it came up
  std::unique_ptr<Port> port;
};

struct Peer : PeerOf<> {
  bool got_hello = false;  // acceptor
  bool leaving = false;    // disconnect() was called: forgotten once its links are fenced
};

// The contract's state machine: peers, links and their epochs, handles, events. The wire moves the bytes. Owner: the
// worker.
class LoopbackTransport final : public LinkedTransport<Link, Peer>, public FlushesWrites, public MovesAtOnce {
 public:
  LoopbackTransport(std::shared_ptr<Loopback> loopback, RegionTable& regions, Runtime& runtime);
  ~LoopbackTransport() override { close(); }

  Status attach(Task& task) override;

  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void disconnect(PeerIndex peer) override;

  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;

  std::size_t post(std::span<const Slice> slices) override;
  AtOnce move_now(const SmallMove& move) override;
  AtOnce send_now(LinkId id, std::span<const std::byte> head, std::span<const std::byte> tail) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  void fence(LinkId link) override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId, std::uint64_t, std::uint64_t, std::string*) override { return Reach::yes; }
  Status flush(std::uint64_t) override {
    wire_.flush();
    return {};
  }
  bool prepare_sleep() override;
  void close() override;

 private:
  // connect.cc: making links
  std::vector<std::byte> hello() override;
  std::vector<std::byte> refusal(const Status& why) override;
  void give_up(Link& link, const Status& why) override;
  void leave(Link& link) override;
  void try_again(Link& link, Role role) override;
  void accept_hello(PeerIndex index, Peer& peer, const Handshake& hello);
  void accept_offer(PeerIndex index, Peer& peer, const Handshake& offer);
  void accept_attached(PeerIndex index, Peer& peer, const Handshake& attached);
  void offer_link(Link& link);
  void attach_link(Link& link, std::uint64_t offer, std::uint32_t attempt);
  void link_is_up(Link& link);
  void retry_offers(Time now);
  Link& add_link(PeerIndex peer, std::uint16_t index, LinkState state);
  void forget_gone_peers();
  std::uint64_t random();

  // transport.cc: using them
  void end_fence_domain(const Link& fenced);
  std::size_t poll_link(Link& link, std::span<Event> events, Time now, std::uint64_t& budget);
  std::size_t poll_ready(std::span<Event> events, Time now, std::uint64_t& budget);
  void finish_deregistrations();

  const std::shared_ptr<Loopback> loopback_;
  Wire& wire_;
  const std::shared_ptr<Doorbell> doorbell_;
  std::vector<std::uint32_t> domain_epochs_;    // by device
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
  bool peers_leaving_ = false;
};

}  // namespace fairway::transport::loopback

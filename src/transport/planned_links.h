#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "transport/event_queue.h"
#include "transport/planned_handshake.h"
#include "transport/transport.h"

namespace fairway::transport {

// The links of a transport that connects its ends by what control carries: which of the two sides' devices meet, each
// link's attempts, deadlines and epochs, who is told what when one fails. What a link is made of is the maker's.
// Belongs to the transport's worker.
//
// The acceptor decides the plan; for each link the initiator makes an end whenever both sides want the link. An attempt
// that the initiator begins before the acceptor has fenced the last one is held until reconnect() takes it. While any
// link of the peer is up, was up or may come, an attempt that failed is followed by another: a device that is down says
// nothing to the peer when it is up again.
class PlannedLinks {
 public:
  // opening and accepted: the end exists; accepted: it takes from the initiator, which may not know. down: fence() it.
  enum class State : std::uint8_t { free, opening, waiting, accepted, up, down, fenced };
  struct Link {
    LinkId id;
    State state = State::free;
    PeerIndex peer = 0;
    bool initiator = false;
    std::uint16_t index = 0;    // within the session, equal at both ends
    std::uint32_t attempt = 0;  // grows with each new end, equal at both ends
    std::uint8_t device = 0, peer_device = 0;
    std::vector<std::byte> held;  // at the acceptor: the end of an attempt that came before reconnect()
    std::uint32_t held_attempt = 0;
    std::vector<std::byte> answer;  // at the acceptor: its end, to be said once that is prepared
    Time deadline = kNever;         // of an attempt
    Time again_at = kNever;         // at the initiator, the next one
    Time pause = 0;                 // before that
    // Of this link and attempt, equal at both ends and unique in the session.
    [[nodiscard]] std::uint64_t name() const { return std::uint64_t{attempt} << 16 | index; }
    // The same of one of its ends: tells it to who looks at the system's objects.
    [[nodiscard]] std::uint64_t end_name() const { return name() << 1 | (initiator ? 1 : 0); }
    [[nodiscard]] LinkId next_id() const { return {id.slot, id.epoch + 1}; }  // of the end that is being made
  };
  // What links are made of. Called on the worker, from within calls of PlannedLinks.
  class Maker {
   public:
    virtual std::vector<std::byte> describe_devices() = 0;
    // Acceptor: pairs {initiator's device, ours}; why not, when it is none. The initiator checks a plan with it too.
    virtual Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) = 0;
    virtual Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) = 0;
    virtual void is_planned(PeerIndex) {}  // the peer takes notes by now, before it hears of any end
    // Makes this side's end; the bytes are for the peer.
    virtual Result<std::vector<std::byte>> make_end(const Link& link) = 0;
    // protocol_error: these are no bytes of an end, and the peer is done with; else another attempt may do.
    virtual Status connect_end(const Link& link, std::span<const std::byte> theirs) = 0;
    // After a connect_end() that has only begun with what comes before all else: is_prepared() or not_connected()
    // follows, unless the end is dropped. The initiator is told of the acceptor's end afterwards.
    virtual bool is_preparing(const Link&) { return false; }
    // After a connect_end() that has only begun: is_connected() or not_connected() follows, the former at the
    // initiator.
    virtual bool is_connecting(const Link&) { return false; }
    virtual void drop_end(const Link& link) = 0;              // one that never was up, or is fenced
    virtual void fail_end(const Link& link, Status why) = 0;  // one that is up: -> its link_down
    virtual bool hear_note(PeerIndex, std::span<const std::byte>) { return false; }  // false: it has none

   protected:
    ~Maker() = default;
  };

  // `name` is the transport's; `version` that of what it says. All of it outlives this object.
  PlannedLinks(std::string name, std::uint16_t version, Runtime& runtime, EventQueue& events, Maker& maker)
      : name_(std::move(name)), version_(version), runtime_(runtime), events_(events), maker_(maker) {}

  Status connect(PeerIndex peer, Role role);
  void exchange(PeerIndex peer, std::span<const std::byte> bytes);
  // The peer is forgotten; each of its links goes through `leave` first (fence it if it is up or down).
  template <class Leave>
  void disconnect(PeerIndex peer, Leave leave);
  void reconnect(LinkId id);
  void note(PeerIndex peer, std::span<const std::byte> bytes);

  [[nodiscard]] Link* find(LinkId id) {  // null: no such link, or of another epoch
    if (id.epoch == 0 || id.slot >= links_.size() || links_[id.slot].id != id) return nullptr;
    return links_[id.slot].state == State::free ? nullptr : &links_[id.slot];
  }
  [[nodiscard]] Link& at(std::uint32_t slot) { return links_[slot]; }
  [[nodiscard]] std::span<const Link> all() const { return links_; }  // by slot, free ones too
  // Up or down, not yet fenced; by slot.
  [[nodiscard]] const std::vector<std::uint32_t>& up() const { return up_; }
  void is_prepared(Link& link);
  void is_connected(Link& link);
  void not_connected(Link& link, const Status& why);
  void is_down(Link& link) { link.state = State::down; }
  void is_fenced(Link& link);  // the end is gone: says so to the peer
  [[nodiscard]] bool knows(PeerIndex peer) const { return peers_.contains(peer); }
  [[nodiscard]] std::vector<PeerIndex> peers() const;

  [[nodiscard]] Time next_deadline() const { return next_deadline_; }
  void look_at_deadlines(Time now);

 private:
  struct Peer {
    Role role = Role::initiator;
    bool failed = false;  // stays known, without links, until disconnect()
    std::array<std::byte, kPlanTokenBytes> token{};
    std::vector<std::uint32_t> slots;  // of links_, by index
    bool was_up = false;
  };

  void plan(PeerIndex index, Peer& peer, const PlannedHandshake& hello);
  void accept_plan(PeerIndex index, Peer& peer, const PlannedHandshake& plan);
  void add_link(PeerIndex index, Peer& peer, std::uint8_t device, std::uint8_t peer_device);
  void open(Link& link);
  void hear_open(Link& link, const PlannedHandshake& message);
  void accept(Link& link, std::vector<std::byte> theirs, std::uint32_t attempt);
  void hear_accept(Link& link, const PlannedHandshake& message);
  void hear_closed(Link& link, const PlannedHandshake& message);
  void open_failed(Link& link, const Status& why);
  void tell_retry_failed(const Link& link, const Status& why);
  void link_is_up(Link& link);
  void fail_peer(PeerIndex index, Peer& peer, Status status, bool tell);
  void leave(Link& link);
  void say(PeerIndex peer, PlannedHandshake message);
  void say(const Link& link, PlannedHandshake::Kind kind, std::vector<std::byte> bytes = {}, std::string reason = {});

  const std::string name_;
  const std::uint16_t version_;
  Runtime& runtime_;
  EventQueue& events_;
  Maker& maker_;
  std::unordered_map<PeerIndex, Peer> peers_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> up_;
  Time next_deadline_ = kNever;
};

template <class Leave>
void PlannedLinks::disconnect(PeerIndex index, Leave leave_first) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return;
  for (const std::uint32_t slot : found->second.slots) {
    Link& link = links_[slot];
    if (link.state == State::up || link.state == State::down) leave_first(link);
    leave(link);
  }
  peers_.erase(index);
}

}  // namespace fairway::transport

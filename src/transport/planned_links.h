#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/linked_transport.h"
#include "transport/planned_handshake.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

// Credits of a link: receive buffers posted at the peer. Each message or immediate uses one until the peer has polled
// it. A credit update carries a running total of kBits bits, so it may come late, twice or out of order. A value; pure.
template <unsigned kBits>
class CreditsOf {
 public:
  static constexpr std::uint32_t kMask = ~std::uint32_t{0} >> (32 - kBits);

  CreditsOf(std::uint32_t theirs, std::uint32_t ours) : left_(theirs), theirs_(theirs), ours_(ours) {}

  [[nodiscard]] std::uint32_t left() const { return left_; }
  void take() { --left_; }
  void give_back() { ++left_; }  // the credit was not used
  // A credit update: the peer has freed `total` receives in all. False: more than were ever used. Ignores an old total.
  bool update(std::uint32_t total) {
    const std::uint32_t more = (total - peer_total_) & kMask;
    if (more > kMask / 2) return true;  // an older total
    if (more > theirs_ - left_) return false;
    peer_total_ = total;
    left_ += more;
    return true;
  }

  [[nodiscard]] std::uint32_t peer_total() const { return peer_total_; }  // the newest total from the peer

  void add_freed() { ++freed_; }  // a receive of ours is free again
  [[nodiscard]] bool has_update() const { return freed_ != sent_; }
  [[nodiscard]] bool update_due() const { return freed_ - sent_ >= (ours_ + 1) / 2; }
  std::uint32_t take_update() {  // the total to send
    sent_ = freed_;
    return freed_ & kMask;
  }

 private:
  std::uint32_t left_, theirs_, ours_;
  std::uint32_t peer_total_ = 0, freed_ = 0, sent_ = 0;
};

using Credits = CreditsOf<32>;

// The links of a transport that connects its ends through control: which devices of the two sides are connected, and
// each link's attempts, deadlines, epochs and failures. A Maker makes the ends (queue pairs, endpoints). Owner: the
// transport's worker.
//
// The acceptor chooses the plan. For each link the initiator makes an end whenever both sides want the link. If the
// initiator begins an attempt before the acceptor has fenced the last epoch, the acceptor holds it until reconnect().
// A failed attempt is followed by another as long as any link of the peer is up, was up or may still come up: a device
// that recovers does not tell the peer.
class PlannedLinks {
 public:
  // opening and accepted: the end exists; accepted: it already receives, though the initiator may not know yet. down:
  // broken, waits for fence().
  enum class State : std::uint8_t { free, opening, waiting, accepted, up, down, fenced };
  struct Link : LinkOf<State> {
    bool initiator = false;
    std::uint8_t peer_device = 0;
    std::vector<std::byte> held;  // acceptor: the initiator's end, if its `open` came before reconnect()
    std::uint32_t held_attempt = 0;
    std::vector<std::byte> answer;  // acceptor: its own end, to be sent once it is prepared
    Time deadline = kNever;         // of the attempt
    Time again_at = kNever;         // initiator: when to try again
    Time pause = 0;                 // initiator: backoff before that
    // Of this link and attempt, equal on both sides and unique in the session.
    [[nodiscard]] std::uint64_t name() const { return std::uint64_t{attempt} << 16 | index; }
    // Names this side's end of it, for people who look at the system's objects (rdma res, ibv user context).
    [[nodiscard]] std::uint64_t end_name() const { return name() << 1 | (initiator ? 1 : 0); }
  };
  // Makes and connects the ends of links. Called on the worker, from within calls of PlannedLinks.
  class Maker {
   public:
    virtual std::vector<std::byte> describe_devices() = 0;
    // Acceptor: pairs of {initiator's device, own device}; an error if none can be connected.
    virtual Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) = 0;
    virtual Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) = 0;
    virtual void on_planned(PeerIndex) {}  // notes may be sent from now on, before any end is announced
    // Makes this side's end; the result is sent to the peer.
    virtual Result<std::vector<std::byte>> make_end(const Link& link) = 0;
    // protocol_error: malformed, and the peer fails. After any other error another attempt may work.
    virtual Status connect_end(const Link& link, std::span<const std::byte> theirs) = 0;
    // connect_end() has only begun (a queue pair on its way to RTS): on_prepared() or on_connect_failed() follows,
    // unless the end is dropped. The acceptor sends its end to the initiator after that.
    virtual bool is_preparing(const Link&) { return false; }
    // connect_end() has only begun (rdma_cm): on_connected(), at the initiator only, or on_connect_failed() follows.
    virtual bool is_connecting(const Link&) { return false; }
    virtual void drop_end(const Link& link) = 0;              // an end that was never up, or is fenced
    virtual void fail_end(const Link& link, Status why) = 0;  // an end that is up -> link_down
    virtual bool on_note(PeerIndex, std::span<const std::byte>) { return false; }  // false: malformed or unexpected

   protected:
    ~Maker() = default;
  };

  // `name`: the transport's. `version`: of its handshake. The references outlive this object.
  PlannedLinks(std::string name, std::uint16_t version, Runtime& runtime, EventQueue& events, Maker& maker)
      : name_(std::move(name)), version_(version), runtime_(runtime), events_(events), maker_(maker) {}

  Status connect(PeerIndex peer, Role role);
  void exchange(PeerIndex peer, std::span<const std::byte> bytes);
  // Forgets the peer; calls `leave` first for each of its links that is up or down, to fence it.
  template <class Leave>
  void disconnect(PeerIndex peer, Leave leave);
  void reconnect(LinkId id);
  void note(PeerIndex peer, std::span<const std::byte> bytes);

  [[nodiscard]] Link* find(LinkId id) { return find_link(links_, id); }
  [[nodiscard]] Link& at(std::uint32_t slot) { return links_[slot]; }
  [[nodiscard]] std::span<const Link> all() const { return links_; }  // by slot, free ones too
  // Up or down, not yet fenced; by slot.
  [[nodiscard]] const std::vector<std::uint32_t>& up() const { return up_; }
  void on_prepared(Link& link);
  void on_connected(Link& link);
  void on_connect_failed(Link& link, const Status& why);
  void on_down(Link& link) { link.state = State::down; }
  void on_fenced(Link& link);  // the end is gone: tells the peer
  [[nodiscard]] bool knows(PeerIndex peer) const { return peers_.contains(peer); }
  [[nodiscard]] std::vector<PeerIndex> peers() const;

  [[nodiscard]] Time next_deadline() const { return next_deadline_; }
  void check_deadlines(Time now);

 private:
  struct Peer : PeerOf<> {
    std::array<std::byte, kPlanTokenBytes> token{};
  };

  void plan(PeerIndex index, Peer& peer, const PlannedHandshake& hello);
  void accept_plan(PeerIndex index, Peer& peer, const PlannedHandshake& plan);
  void add_link(PeerIndex index, Peer& peer, std::uint8_t device, std::uint8_t peer_device);
  void open(Link& link);
  void on_open(Link& link, const PlannedHandshake& message);
  void accept(Link& link, std::vector<std::byte> theirs, std::uint32_t attempt);
  void on_accept(Link& link, const PlannedHandshake& message);
  void on_closed(Link& link, const PlannedHandshake& message);
  void open_failed(Link& link, const Status& why);
  void report_retry_failed(const Link& link, const Status& why);
  void link_is_up(Link& link);
  void fail_peer(PeerIndex index, Peer& peer, Status status, bool tell);
  void leave(Link& link);
  void send(PeerIndex peer, PlannedHandshake message);
  void send(const Link& link, PlannedHandshake::Kind kind, std::vector<std::byte> bytes = {}, std::string reason = {});

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

// The part of the contract that all transports with planned links (planned_links.h) share: peers, and links with their
// epochs. The derived class moves the bytes. Functions about memory and devices have a default for transports with one
// device and no keys. Derive from PlannedTransportWith, below. Owner: the transport's worker.
class PlannedTransport : public Transport, protected PlannedLinks::Maker {
 public:
  Status attach(Task& task) override {
    task_ = &task;
    return {};
  }
  Status connect(PeerIndex peer, Role role) override;
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void disconnect(PeerIndex peer) override;
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void close() override;

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;
  Reach reach(LinkId, std::uint64_t, std::uint64_t, std::string*) override { return Reach::yes; }
  void cancel(SliceToken /*token*/) override {}
  Time next_timer() const override { return closed_ ? kNever : links_.next_deadline(); }

 protected:
  using Link = PlannedLinks::Link;

  // `version`: of its handshake.
  PlannedTransport(std::string name, std::uint16_t version, RegionTable& regions, Runtime& runtime)
      : Transport(std::move(name)),
        regions_(regions),
        runtime_(runtime),
        links_(this->name(), version, runtime, inbox_, *this) {}

  // Ends the epoch of a link that is up or down: gives each slice its event, then calls fenced().
  virtual void end_epoch(Link& link) = 0;
  virtual void forget(PeerIndex peer) = 0;  // called after the peer's links have ended
  std::vector<std::byte> describe_devices() override { return {}; }
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) override;
  Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) override;

  void fenced(Link& link, std::uint64_t immediates, Status status = {});
  void disconnect_all();
  [[nodiscard]] bool is_up(const Link* link) const { return link != nullptr && link->state == PlannedLinks::State::up; }
  // For post(): calls `one` for each slice in order, as long as its link is up. Its answer: nothing, the link is full;
  // ok; or why the slice is refused.
  template <class One>
  std::size_t post_each(std::span<const Slice> slices, One one) {
    std::size_t taken = 0;
    const Link* link = nullptr;
    for (; taken < slices.size(); ++taken) {
      if (link == nullptr || link->id != slices[taken].link) link = links_.find(slices[taken].link);
      if (closed_ || !is_up(link)) break;
      const std::optional<ErrorCode> code = one(*link, slices[taken]);
      if (!code) break;
      if (*code != ErrorCode::ok) inbox_.refuse(slices[taken], name(), *code);
    }
    return taken;
  }
  // Calls `broken` for each link that is up or down, starting at another one each time; true marks the link as down.
  template <class Poll>
  void poll_each(Poll broken) {
    const auto& up = links_.up();
    const std::size_t count = up.size();
    if (++next_ >= count) next_ = 0;  // no division: it would be dear in an idle poll
    for (std::size_t i = 0, at = next_; i < count; ++i, at = at + 1 == count ? 0 : at + 1) {
      Link& link = links_.at(up[at]);
      if (broken(link) && link.state == PlannedLinks::State::up) links_.on_down(link);
    }
  }

  RegionTable& regions_;
  Runtime& runtime_;
  Task* task_ = nullptr;
  Inbox inbox_{counters_};
  PlannedLinks links_;
  bool closed_ = false;

 private:
  std::size_t next_ = 0;  // the link to poll first
};

// The same with the regions that were imported from peers. `Remote`: what the transport knows of each.
template <class Remote = std::monostate>
class PlannedTransportWith : public PlannedTransport {
 public:
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override {
    if (!links_.knows(peer)) return Status(ErrorCode::not_found, name() + ": no such peer");
    auto remote = read_keys(peer, memory, keys);
    if (!remote) return remote.status();
    return imports_.add(peer, memory.id, std::move(*remote));
  }
  void release(std::uint64_t remote_handle) override { imports_.release(remote_handle); }

 protected:
  using PlannedTransport::PlannedTransport;
  using Import = typename ImportTable<Remote>::Entry;

  virtual Result<Remote> read_keys(PeerIndex, const RemoteMemory&, std::span<const KeyBytes>) { return Remote(); }
  void forget(PeerIndex peer) override { imports_.release_all(peer); }
  // For post(): command.h's prepare(), and where the slice goes; `import`: null for a message.
  ErrorCode prepare(const Link& link, const Slice& slice, Command& out, Import** import = nullptr) {
    Import* const found = imports_.find(slice.remote_handle, link.peer);
    if (import != nullptr) *import = found;
    return transport::prepare(devices_[link.device].capabilities, regions_, slice,
                              found == nullptr ? nullptr : &found->region, out);
  }

  ImportTable<Remote> imports_;
};

}  // namespace fairway::transport

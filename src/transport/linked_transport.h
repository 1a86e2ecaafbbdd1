#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::transport {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

// What every link has. `State` names at least free, up, down and fenced.
template <class State>
struct LinkOf {
  LinkId id;
  State state = State::free;
  PeerIndex peer = 0;
  DeviceIndex device = 0;
  std::uint16_t index = 0;    // within the session, equal at both ends
  std::uint32_t attempt = 0;  // counts the attempts to connect it, equal at both ends
  [[nodiscard]] LinkId next_id() const { return {id.slot, id.epoch + 1}; }  // once this attempt is up
};

// Finds a link by its id; null: no such link, or another epoch.
template <class Link>
Link* find_link(std::vector<Link>& links, LinkId id) {
  if (id.epoch == 0 || id.slot >= links.size() || links[id.slot].id != id) return nullptr;
  return links[id.slot].state == decltype(Link::state)::free ? nullptr : &links[id.slot];
}

// A free place among the links, or a new one. Its epochs go on; all else begins anew.
template <class Link>
Link& free_link(std::vector<Link>& links) {
  auto found = std::find_if(links.begin(), links.end(),
                            [](const Link& link) { return link.state == decltype(Link::state)::free; });
  if (found == links.end()) found = links.insert(found, Link());
  const LinkId id{static_cast<std::uint32_t>(found - links.begin()), found->id.epoch};
  *found = Link();
  found->id = id;
  return *found;
}

// The next epoch of a link begins.
template <class Link>
void announce(Link& link, std::uint64_t epoch_name, EventQueue& events) {
  ++link.id.epoch;
  link.state = decltype(Link::state)::up;
  Event& event = events.add(EventKind::link_up);
  event.link = link.id;
  event.peer = link.peer;
  event.device = link.device;
  event.value = epoch_name;
}

// What every peer has. `Slots`: the places of its links, by their index in the session; kNoSlot: not made yet.
template <class Slots = std::vector<std::uint32_t>>
struct PeerOf {
  Role role = Role::initiator;
  bool failed = false;  // stays known, without links, until disconnect()
  bool was_up = false;
  Slots slots{};
};

// The part of the contract that transports share which make their links by themselves: peers, links with their epochs,
// events, and the regions that were imported. The derived class has the handshake, and moves the bytes. `Link` and
// `Peer` derive from LinkOf and PeerOf; `Remote` is what the transport knows of an imported region. Owner: the
// transport's worker.
template <class Link, class Peer, class Remote = std::monostate, class Events = Inbox>
class LinkedTransport : public Transport {
 public:
  Status attach(Task& task) override {
    task_ = &task;
    return {};
  }
  Status connect(PeerIndex index, Role role) override {
    if (closed_ || task_ == nullptr) return {ErrorCode::closed, "the transport is closed"};
    const auto [at, fresh] = peers_.try_emplace(index);
    if (!fresh) return {ErrorCode::already_exists, name() + ": the peer is connected, or not forgotten yet"};
    at->second.role = role;
    if (role == Role::initiator) send(index, hello());
    return {};
  }
  void disconnect(PeerIndex index) override {
    const auto found = peers_.find(index);
    if (found == peers_.end()) return;
    found->second.failed = true;  // it is told nothing more
    each_link(found->second, [this](Link& link) { leave(link); });
    imports_.release_all(index);
    peers_.erase(found);
  }
  void reconnect(LinkId id) override {
    Link* link = find(id);
    if (link == nullptr || link->state != State::fenced || closed_) return;
    if (const Peer& peer = peers_[link->peer]; !peer.failed) try_again(*link, peer.role);
  }

  // The handle is the region's id.
  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource&) override {
    if (memory.kind != MemoryKind::host && memory.kind != MemoryKind::pinned)
      return Status(ErrorCode::unsupported, name() + " moves host memory only");
    const Result<Region> region = regions_.find(memory.id);
    if (!region) return region.status();
    return RegisteredMemory{handle_of(memory.id), {}};
  }
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes>) override {
    if (!peers_.contains(peer)) return Status(ErrorCode::not_found, name() + ": no such peer");
    return imports_.add(peer, memory.id);
  }
  void release(std::uint64_t remote_handle) override { imports_.release(remote_handle); }
  Time next_timer() const override { return timer_; }

 protected:
  using State = decltype(Link::state);
  using Import = typename ImportTable<Remote>::Entry;

  LinkedTransport(std::string name, RegionTable& regions, Runtime& runtime)
      : Transport(std::move(name)), regions_(regions), runtime_(runtime) {}

  virtual std::vector<std::byte> hello() = 0;  // from the initiator
  virtual std::vector<std::byte> refusal(const Status& why) = 0;
  virtual void give_up(Link& link, const Status& why) = 0;  // of a peer that failed: it breaks, or ends its attempt
  virtual void leave(Link& link) = 0;                       // of a peer that is forgotten
  virtual void try_again(Link& link, Role role) = 0;        // a fenced one

  [[nodiscard]] Link* find(LinkId id) { return find_link(links_, id); }
  [[nodiscard]] Peer* listens_to(PeerIndex index) {  // null: to no such peer
    const auto found = peers_.find(index);
    return closed_ || found == peers_.end() || found->second.failed ? nullptr : &found->second;
  }
  template <class Visit>
  void each_link(const Peer& peer, Visit visit) {
    for (const std::uint32_t slot : peer.slots)
      if (slot != kNoSlot) visit(links_[slot]);
  }
  Link& make_link(PeerIndex peer, std::uint16_t index, State state) {
    Link& link = free_link(links_);
    link.state = state;
    link.peer = peer;
    link.index = index;
    peers_[peer].slots[index] = link.id.slot;
    return link;
  }
  void announce(Link& link, std::uint64_t epoch_name) {
    transport::announce(link, epoch_name, inbox_);
    peers_[link.peer].was_up = true;
  }
  void send(PeerIndex peer, std::span<const std::byte> handshake) {
    inbox_.add(EventKind::exchange, {}, handshake).peer = peer;
  }
  // Its links break; if it has none, connect() has failed. `tell`: the peer, too.
  void fail_peer(PeerIndex index, Peer& peer, const Status& status, bool tell) {
    if (peer.failed) return;
    peer.failed = true;
    if (tell) send(index, refusal(status));
    bool a_link_tells = false;
    each_link(peer, [&](Link& link) {
      give_up(link, status);
      a_link_tells |= link.state == State::up;
    });
    if (!a_link_tells) inbox_.no_link(index, status);
  }
  void disconnect_all() {
    std::vector<PeerIndex> all;
    for (const auto& [index, peer] : peers_) all.push_back(index);
    for (const PeerIndex index : all) disconnect(index);
  }

  // command.h's prepare()
  ErrorCode prepare(const Link& link, const Slice& slice, Command& out) {
    const Import* const import = imports_.find(slice.remote_handle, link.peer);
    return transport::prepare(devices_[link.device].capabilities, regions_, slice,
                              import == nullptr ? nullptr : &import->region, out);
  }
  // For post() over lanes: `check` makes a command of each slice, `flush` ends a run of slices of one link.
  template <class Check, class Flush>
  std::size_t post_each(std::span<const Slice> slices, Check check, Flush flush) {
    std::size_t taken = 0;
    for (bool full = false; !full && taken < slices.size();) {
      Link* const link = find(slices[taken].link);
      if (closed_ || link == nullptr || link->state != State::up || link->lane->broken()) break;
      while (!full && taken < slices.size() && slices[taken].link == link->id) {
        Command command;
        const ErrorCode refused = check(*link, slices[taken], command);
        if (refused == ErrorCode::ok)
          full = !link->lane->post(command);
        else
          inbox_.refuse(slices[taken], name(), refused);
        taken += full ? 0 : 1;
      }
      flush(*link->lane);
    }
    return taken;
  }
  // Calls `poll` for each link with a lane, starting at another one each time.
  template <class Poll>
  void poll_each(Poll poll) {
    const std::size_t count = up_.size();
    if (++next_ >= count) next_ = 0;  // no division: it would be dear in an idle poll
    for (std::size_t i = 0, at = next_; i < count; ++i, at = at + 1 == count ? 0 : at + 1) poll(links_[up_[at]]);
  }

  RegionTable& regions_;
  Runtime& runtime_;
  Task* task_ = nullptr;
  Events inbox_{counters_};
  ImportTable<Remote> imports_;
  std::unordered_map<PeerIndex, Peer> peers_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> up_;  // slots of links with a lane: up or down, not fenced yet
  Time timer_ = kNever;
  bool closed_ = false;

 private:
  std::size_t next_ = 0;  // the link to poll first
};

// Opens a transport that has an open() of its own.
template <class Made, class... Arguments>
Result<std::unique_ptr<Transport>> open_transport(Arguments&&... arguments) {
  auto made = std::make_unique<Made>(std::forward<Arguments>(arguments)...);
  if (Status status = made->open(); !status) return status;
  return std::unique_ptr<Transport>(std::move(made));
}

}  // namespace fairway::transport

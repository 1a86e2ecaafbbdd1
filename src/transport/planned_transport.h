#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/handles.h"
#include "transport/inbox.h"
#include "transport/planned_links.h"
#include "transport/region_table.h"

namespace fairway::transport {

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

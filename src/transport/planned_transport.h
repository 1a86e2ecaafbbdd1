#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "transport/inbox.h"
#include "transport/planned_links.h"

namespace fairway::transport {

// The part of the contract that all transports with planned links (planned_links.h) share: peers, and links with their
// epochs. The derived class moves the bytes. Functions about memory and devices have a default for transports with one
// device and no keys. Owner: the transport's worker.
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

  Result<RegisteredMemory> register_memory(const MemoryDescription& memory) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  void release(std::uint64_t /*remote_handle*/) override {}
  void cancel(SliceToken /*token*/) override {}
  Time next_timer() const override { return closed_ ? kNever : links_.next_deadline(); }

 protected:
  using Link = PlannedLinks::Link;

  // `version`: of its handshake.
  PlannedTransport(std::string name, std::uint16_t version, Runtime& runtime)
      : Transport(std::move(name)), runtime_(runtime), links_(this->name(), version, runtime, inbox_, *this) {}

  // Ends the epoch of a link that is up or down: gives each slice its event, then calls fenced().
  virtual void end_epoch(Link& link) = 0;
  virtual void forget(PeerIndex /*peer*/) {}  // called after the peer's links have ended
  std::vector<std::byte> describe_devices() override { return {}; }
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) override;
  Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) override;

  void fenced(Link& link, std::uint64_t immediates, Status status = {});
  void disconnect_all();
  [[nodiscard]] bool is_up(const Link* link) const { return link != nullptr && link->state == PlannedLinks::State::up; }
  // Calls `broken` for each link that is up or down, starting at another one each time; true marks the link as down.
  template <class Poll>
  void poll_each(Poll broken) {
    const auto& up = links_.up();
    const std::size_t count = up.size();
    for (std::size_t i = 0; i < count; ++i) {
      Link& link = links_.at(up[(next_ + i) % count]);
      if (broken(link) && link.state == PlannedLinks::State::up) links_.on_down(link);
    }
    if (count != 0) next_ = (next_ + 1) % count;
  }

  Runtime& runtime_;
  Task* task_ = nullptr;
  Inbox inbox_{counters_};
  PlannedLinks links_;
  bool closed_ = false;

 private:
  std::size_t next_ = 0;  // the link to poll first
};

}  // namespace fairway::transport

#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/handles.h"
#include "transport/janitor.h"
#include "transport/planned_links.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/renewed_keys.h"
#include "transport/verbs/switchboard.h"
#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {

// The contract's state machine: links (planned_links.h) between ports here and there, each of them a lane (lane.h), and
// memory. Belongs to one worker's thread, as the contract says.
//   transport.cc  using lanes
//   connect.cc    what links are made of
//   news.cc       what befalls ports and devices
//   comeback.cc   devices that are there again
class VerbsTransport final : public Transport, private PlannedLinks::Maker {
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

  std::optional<MemoryPlace> place_of(const void* address) const override { return place_of_gpu_memory(address); }
  Result<RegisteredMemory> register_memory(const MemoryDescription& memory) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory,
                               std::span<const std::vector<std::byte>> keys) override;
  void release(std::uint64_t remote_handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override {
    return closed_ ? kNever : std::min({links_.next_deadline(), endings_at_, devices_at_});
  }
  void fence(LinkId link) override;
  void reconnect(LinkId link) override;
  void cancel(SliceToken token) override;
  bool carries(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle) override;
  std::string way(std::uint64_t remote_handle) const override;
  Costs costs() const override;
  bool prepare_sleep() override;
  void close() override;

 private:
  using Link = PlannedLinks::Link;
  struct End {
    std::unique_ptr<Lane> lane;
    bool rings = false;      // it is in ringing_
    bool called = false;     // the switchboard knows it
    std::uint64_t walk = 0;  // of its queue pair, on the guide's thread; 0: none
  };
  struct Remote {  // of an imported region
    std::uint64_t size_bytes = 0;
    Access access = Access::none;
    std::vector<std::optional<Key>> keys;  // by the owner's port; none: it has it not there
  };
  struct Comeback {  // of a port, or of regions to one
    Port* port = nullptr;
    Port::Hold held;               // none: it is gone
    std::unique_ptr<Port> opened;  // what it is to become
    std::vector<Placing> regions;
    Status status;
    std::atomic<bool> done = false;  // the rest is the worker's again
    [[nodiscard]] bool brings(std::uint64_t handle) const;
    void give_back();  // what nobody took
  };
  struct Ending {  // memory that slices still use
    std::uint64_t handle = 0;
    Time deadline = kNever;
  };

  // connect.cc
  std::vector<std::byte> describe_devices() override;
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) override;
  Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) override;
  Result<std::vector<std::byte>> make_end(const Link& link) override;
  Status connect_end(const Link& link, std::span<const std::byte> theirs) override;
  bool is_preparing(const Link& link) override { return ends_[link.id.slot].walk != 0; }
  bool is_connecting(const Link& link) override;
  void drop_end(const Link& link) override;
  void fail_end(const Link& link, Status why) override;
  [[nodiscard]] std::vector<PortAddress> addresses() const;
  Status lead(const Link& link, Lane& lane, const QueuePair::Way& way);
  void take_arrivals();
  Status call(const Link& link, Lane& lane, const Endpoint& theirs);
  Result<Switchboard*> switchboard();  // opened when first needed
  Status listen_by_manager(Port& port);
  void look_at_calls(Time now, bool woken);

  // news.cc
  void look_at_ports(Time now);
  void look_at_devices(Time now);
  void let_ports_go(Time now);
  Status watch(const Port& port);
  void unwatch(const Port& port);
  void end_links(const Port& port, const std::string& why);

  // comeback.cc
  void look_for_comebacks(const std::vector<std::string>& listed);
  void look_for_latecomers();
  void begin_comeback(Port& port);
  void end_comeback();
  void tell_keys(PeerIndex peer, std::size_t port, std::span<const RenewedKey> keys);
  void is_planned(PeerIndex peer) override;
  bool hear_note(PeerIndex peer, std::span<const std::byte> bytes) override;
  static bool renew(Remote& remote, std::span<const RenewedKeys::AtPort> keys);

  // transport.cc
  void fence(Link& link);
  [[nodiscard]] Lane* lane_of(const Link& link) const { return ends_[link.id.slot].lane.get(); }
  ErrorCode check(const Link& link, const Slice& slice, Command& out, const Registration*& local, Key& remote);
  static bool remote_fits(const Slice& slice, const Remote& remote);
  void end_memory(Time now);
  void tell_unpinned();
  bool memory_is_free(std::uint64_t handle);

  RegionTable& regions_;
  Runtime& runtime_;
  const VerbsOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Device> devices_;  // theirs
  Task* task_ = nullptr;
  Inbox inbox_;
  Registrations registrations_;
  PlannedLinks links_;
  std::vector<End> ends_;      // by slot of their link
  std::vector<End*> ringing_;  // those that the slices being posted go to
  std::vector<Ending> endings_;
  ImportTable<Remote> imports_;
  RenewedKeys renewed_keys_;
  std::unique_ptr<Switchboard> switchboard_;
  std::size_t next_lane_ = 0;  // polled first, in turn
  bool armed_ = false;         // completions may have announced themselves
  Time endings_at_ = kNever;   // the next look at endings_
  Time calls_at_ = 0;          // the next look at the switchboard
  Time ports_at_ = 0;          // the next look for what befell the ports: a system call, so not in every poll
  Time devices_at_ = 0;        // the next look whether they are still there
  bool losing_ = false;        // a port is lost and not yet let go
  bool closed_ = false;
  std::unique_ptr<Comeback> comeback_;              // the one under way
  std::uint64_t latecomers_seen_ = 0;               // of Registrations::added_without()
  std::uint32_t unpinning_ = 0;                     // regions that the janitor has
  std::mutex unpinned_mutex_;                       // guards the next three
  bool listing_ = false;                            // the janitor is to
  std::optional<std::vector<std::string>> listed_;  // devices that are there, since it was looked at last
  std::vector<std::uint64_t> unpinned_;             // handles of regions that it is done with
  struct Arrival {
    std::uint32_t slot = 0;
    std::uint64_t walk = 0;
    Status status;
  };
  std::uint64_t last_walk_ = 0;
  std::uint32_t walking_ = 0;  // queue pairs, those that were dropped too
  std::mutex arrivals_mutex_;  // guards arrivals_
  std::vector<Arrival> arrivals_;
  Janitor janitor_;  // what is left is done when it ends, before all above
  Janitor guide_;    // leads queue pairs to their peers: the janitor may be seconds with the end of another
};

}  // namespace fairway::transport::verbs

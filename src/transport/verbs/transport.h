#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/gpu_access.h"
#include "transport/keyed_memory.h"
#include "transport/planned_links.h"
#include "transport/verbs/cm_connector.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/lane.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/port.h"
#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {

// The contract's state machine: links (planned_links.h) between ports, each a lane (lane.h), and memory. Owner: the
// worker.
//   transport.cc      using lanes, ending memory
//   connect.cc        making and connecting queue pairs
//   port_events.cc    events and failures of ports and devices, and devices that have returned
class VerbsTransport final : public PlannedTransportWith<KeyedMemory<Key>>, private GpuAccess {
 public:
  VerbsTransport(RegionTable& regions, Runtime& runtime, VerbsOptions options);
  ~VerbsTransport() override { close(); }

  Status open();  // call first
  Status attach(Task& task) override;

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override {
    return closed_ ? kNever : std::min({links_.next_deadline(), deregistrations_at_, devices_at_});
  }
  void cancel(SliceToken token) override;
  Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) override;
  GpuAccess* gpu() override { return this; }
  bool prepare_sleep() override;
  void close() override;

 private:
  std::optional<MemoryPlace> place_of(const void* address) const override { return place_of_gpu_memory(address); }

  struct End {
    std::unique_ptr<Lane> lane;
    bool rings = false;            // is in ringing_
    bool by_cm = false;            // is connected by cm_
    std::uint64_t transition = 0;  // number of its move to RTS on rts_thread_; 0: none
  };
  using Remote = KeyedMemory<Key>;
  struct PortRecovery {  // reopens a port, or registers missed regions with one
    Port* port = nullptr;
    Port::Hold held;               // none: the port is gone
    std::unique_ptr<Port> opened;  // to become `port`
    std::vector<Placing> regions;
    std::vector<OwnRegion> words;  // of GPUs, at `opened`, if it does not come into use
    Status status;
    std::atomic<bool> done = false;  // then the worker owns all of this again
    [[nodiscard]] bool has(std::uint64_t handle) const;
    void give_back();  // destroys what was not taken over
  };
  struct Deregistration {  // waits for slices that still use the memory
    std::uint64_t handle = 0;
    Time deadline = kNever;
  };

  // connect.cc
  std::vector<std::byte> describe_devices() override;
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) override;
  Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) override;
  Result<std::vector<std::byte>> make_end(const Link& link) override;
  Status connect_end(const Link& link, std::span<const std::byte> theirs) override;
  bool is_preparing(const Link& link) override { return ends_[link.id.slot].transition != 0; }
  bool is_connecting(const Link& link) override;
  void drop_end(const Link& link) override;
  void fail_end(const Link& link, Status why) override;
  [[nodiscard]] std::vector<PortAddress> addresses() const;
  Status move_to_rts(const Link& link, Lane& lane, const QueuePair::Transitions& steps);
  void take_rts_outcomes();
  Status connect_by_cm(const Link& link, Lane& lane, const Endpoint& theirs);
  Result<CmConnector*> cm_connector();  // opened when first needed
  Status listen_by_cm(Port& port);
  void poll_cm(Time now, bool woken);

  // port_events.cc
  void check_ports(Time now);
  void check_devices(Time now);
  void release_lost_ports(Time now);
  Status watch(const Port& port);
  void unwatch(const Port& port);
  void end_links(const Port& port, const std::string& why);

  // devices that have returned
  void start_recoveries(const std::vector<std::string>& listed);
  void register_missed_regions();
  void begin_recovery(Port& port);
  void end_recovery();
  void abandon(PortRecovery& recovery);
  void send_renewed_keys(PeerIndex peer, std::size_t port, std::span<const RenewedKey> keys);
  void on_planned(PeerIndex peer) override;
  bool on_note(PeerIndex peer, std::span<const std::byte> bytes) override;
  static bool renew(Remote& remote, std::span<const RenewedKeys::AtPort> keys);

  // lane.cc
  ErrorCode check(const Link& link, const Slice& slice, Command& out, const Registration*& local, const Key*& remote);
  ErrorCode check_plain(const Link& link, const Slice& slice, Command& out, const Registration*& local,
                        const Key*& remote);

  // transport.cc
  Result<Remote> read_keys(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  [[nodiscard]] std::string describe_path(std::uint64_t remote_handle) const;
  void end_epoch(Link& link) override;
  void forget(PeerIndex peer) override;
  [[nodiscard]] Lane* lane_of(const Link& link) const { return ends_[link.id.slot].lane.get(); }
  void finish_deregistrations(Time now);
  bool memory_is_free(std::uint64_t handle);

  const VerbsOptions options_;
  std::vector<std::unique_ptr<Port>> ports_;
  Registrations registrations_;
  std::vector<End> ends_;      // by slot of their link
  std::vector<End*> ringing_;  // ends with newly posted slices
  std::vector<Deregistration> deregistrations_;
  RenewedKeys renewed_keys_;
  std::unique_ptr<CmConnector> cm_;
  bool armed_ = false;                      // notifications of completions may be pending
  Time deregistrations_at_ = kNever;        // the next look at deregistrations_
  Time cm_at_ = 0;                          // the next look at the connector
  Time ports_at_ = 0;                       // the next check_ports(): a system call, so not in every poll
  Time devices_at_ = 0;                     // the next check_devices()
  bool losing_ = false;                     // a port is lost and not released yet
  std::unique_ptr<PortRecovery> recovery_;  // in progress
  std::uint64_t missed_seen_ = 0;           // of Registrations::added_without()
  SlowDeregistrations slow_deregistrations_;
  std::mutex listing_mutex_;                        // guards the next two
  bool listing_ = false;                            // the janitor is listing devices
  std::optional<std::vector<std::string>> listed_;  // its result, not read yet
  struct RtsOutcome {
    std::uint32_t slot = 0;
    std::uint64_t transition = 0;
    Status status;
  };
  std::uint64_t last_transition_ = 0;
  std::uint32_t in_transition_ = 0;  // queue pairs on rts_thread_, also dropped ones
  std::mutex rts_mutex_;             // guards rts_outcomes_
  std::vector<RtsOutcome> rts_outcomes_;
  Janitor janitor_;     // last: its destructor runs the jobs that are left
  Janitor rts_thread_;  // moves queue pairs to RTS; separate, since destroying one may take the janitor seconds
};

}  // namespace fairway::transport::verbs

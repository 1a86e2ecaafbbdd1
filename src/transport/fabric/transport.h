#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/fabric/domain.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/frame.h"
#include "transport/fabric/lane.h"
#include "transport/fabric/memory.h"
#include "transport/keyed_memory.h"
#include "transport/planned_links.h"

namespace fairway::transport::fabric {

struct FabricRemote : KeyedMemory<Key> {  // of an imported region, by the owner's domain
  struct LinkKey {                        // of a region with one key per link
    std::uint64_t link_name = 0;
    bool known = false, refused = false;
    std::uint64_t key = 0;
  };
  bool revoked = false;
  std::vector<LinkKey> link_keys;
};

// The contract's state machine: links (planned_links.h) between domains, each a lane (lane.h), and memory. Owner: the
// worker.
//   transport.cc  using lanes
//   connect.cc    making and connecting endpoints
//   revoke.cc     deregistration together with peers; keys per link
class FabricTransport final : public PlannedTransportWith<FabricRemote> {
 public:
  FabricTransport(RegionTable& regions, Runtime& runtime, FabricOptions options);
  ~FabricTransport() override { close(); }

  Status open();  // call first

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) override;
  bool prepare_sleep() override;
  void close() override;

 private:
  using LinkKey = FabricRemote::LinkKey;
  struct Deregistration {
    std::uint64_t handle = 0;
    bool shared = false;  // peers may use the memory
    Time deadline = kNever;
    std::vector<PeerIndex> asked;  // peers that have not answered yet
    Status held;                   // not ok: who may touch it after its end
  };
  struct Unstopped {  // an end that is closed for this side, and whose provider may still use memory
    PeerIndex peer = 0;
    bool open = false;                         // the peer may use it
    std::vector<std::uint64_t> local, remote;  // handles of this side's regions and of the peer's, in its operations
    std::string why;
  };
  struct RevokeRequest {  // a peer's region to which this side may have operations in flight
    PeerIndex peer = 0;
    std::uint64_t region = 0;
  };
  enum class Answer : std::uint8_t { yes, not_yet, no };

  // connect.cc
  std::vector<std::byte> describe_devices() override;
  Result<std::vector<PlannedPair>> pair_devices(std::span<const std::byte> initiators) override;
  Status check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) override;
  Result<std::vector<std::byte>> make_end(const Link& link) override;
  Status connect_end(const Link& link, std::span<const std::byte> theirs) override;
  void drop_end(const Link& link) override;
  void fail_end(const Link& link, Status why) override;
  bool on_note(PeerIndex peer, std::span<const std::byte> bytes) override;
  [[nodiscard]] std::vector<DomainAddress> addresses() const;

  // revoke.cc
  void on_revoke(PeerIndex peer, std::uint64_t region);
  void on_revoked(PeerIndex peer, std::uint64_t region);
  void on_ask_key(PeerIndex peer, const Note& note);
  void on_key(PeerIndex peer, const Note& note);
  void finish_deregistrations(Time now);
  bool is_used(Deregistration& ending, Time now);
  void end_registration(Deregistration& ending);
  void answer_revokes();
  Answer key_of_link(const Link& link, Import& import, Key& key);
  void send_note(PeerIndex peer, const Note& note) { links_.note(peer, encode(note)); }

  // transport.cc
  Result<FabricRemote> read_keys(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  void end_epoch(Link& link) override;
  void forget(PeerIndex peer) override;
  void close_lane(const Link& link);
  void note_unstopped(const Link& link);
  [[nodiscard]] Lane* lane_of(const Link& link) const {
    return link.id.slot < lanes_.size() ? lanes_[link.id.slot].get() : nullptr;
  }
  struct Ends {  // of a slice, beside its command
    void* descriptor = nullptr;
    const sys::BusGpu* gpu = nullptr;
    Key remote;
  };
  ErrorCode check(const Link& link, const Slice& slice, Command& out, Ends& ends, bool& not_yet);
  void set_timer(Time now);

  const FabricOptions options_;
  std::vector<std::unique_ptr<Domain>> domains_;
  Registrations registrations_;
  std::vector<Lane::Owner> lanes_;  // by slot
  std::vector<Deregistration> deregistrations_;
  std::vector<Unstopped> unstopped_;
  std::vector<RevokeRequest> revoke_requests_;
  Time timer_ = kNever;
  Time quiet_since_ = 0;  // the longer, the less often lanes without a descriptor are polled
  bool posted_ = false;   // since the last poll
  SlowDeregistrations slow_deregistrations_;
  Janitor janitor_;  // last: its destructor runs the jobs that are left
};

}  // namespace fairway::transport::fabric

#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "transport/gpu_access.h"
#include "transport/host/files.h"
#include "transport/host/handshake.h"
#include "transport/host/lane.h"
#include "transport/host/mover.h"
#include "transport/linked_transport.h"
#include "transport/optional_calls.h"

namespace fairway::transport::host {

struct HostOptions {
  std::string name;    // of the transport
  std::string device;  // name of its only device
  bool map = true;     // map the peer's memory files
  bool cma = true;     // use cross-memory attach
  bool links = true;   // false: no links to peers, only copies within this process
  std::uint64_t max_slice_bytes = Capabilities().max_slice_bytes;
  std::uint32_t max_slice_blocks = Capabilities().max_slice_blocks;
};

// Initiator: dialing. Acceptor: waiting; welcomed: it has a lane, but the dialer may not know yet. leaving: its peer
// is disconnected, and a device still copies for it.
enum class LinkState : std::uint8_t { free, dialing, waiting, welcomed, up, down, fencing, fenced, leaving };

struct Notes {
  struct One {
    std::vector<std::byte> bytes;
    bool answer = false;
  };
  std::deque<One> waiting;
  std::size_t answers = 0;  // among them
};

struct Link : LinkOf<LinkState> {
  std::unique_ptr<Lane> lane;
  std::shared_ptr<Pair> dialed;               // while dialing
  std::unique_ptr<JoinRequest> join_request;  // acceptor: one that came too early
  Notes out;                                  // notes that wait for room on the socket
  Time deadline = kNever;
  Time up_since = 0, welcome_at = 0;  // acceptor: welcomes no join request before welcome_at
  std::uint32_t flaps = 0;            // epochs in a row that broke at once
  Time fencing_since = 0;
  bool stuck_reported = false;  // that the peer holds up the fence
  bool was_up = false;          // leaving: it had an epoch, whose end is told
};

struct Peer : PeerOf<std::array<std::uint32_t, 1>> {
  Peer() { slots[0] = kNoSlot; }
  std::string socket;
  Token dialer{}, listener{};
  std::vector<std::shared_ptr<PeerFile>> files;
  std::size_t asked = 0;  // files requested and not answered yet
};

// The contract's state machine: peers, links and their epochs, handles. Each peer has one link, a lane (lane.h). Owner:
// the worker.
//   transport.cc  using lanes, ending memory; links between devices that must not fall asleep
//   connect.cc    connecting and reconnecting links, disconnecting peers
//   dial.cc       one attempt at a link
//   files.cc      requesting and sending the files behind regions
//   views.cc      views of regions for kernels and CPUs
class HostTransport final : public LinkedTransport<Link, Peer, Remote>,
                            public ConnectsByItself,
                            public MovesAtOnce,
                            private GpuAccess {
 public:
  // `mover`: for device memory, or null.
  HostTransport(RegionTable& regions, Runtime& runtime, HostOptions options, std::unique_ptr<Mover> mover = nullptr);
  ~HostTransport() override { close(); }

  Status open();  // call first
  Status attach(Task& task) override;

  Status connect(PeerIndex peer, Role role) override;
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  bool leaves(PeerIndex peer) const override;

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  void release(std::uint64_t remote_handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  AtOnce move_now(const SmallMove& move) override;
  AtOnce send_now(LinkId id, std::span<const std::byte> head, std::span<const std::byte> tail) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override { return std::min(timer_, wake_links_at_); }
  void fence(LinkId link) override;
  bool forgo(PeerIndex peer, std::uint64_t name) override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) override;
  bool prepare_sleep() override;
  void close() override;
  Status untouched() override;

  GpuAccess* gpu() override { return this; }

 private:
  // GpuAccess. Without a mover: views for CPUs, and nothing of GPUs.
  Bits device_initiated() const override;
  std::optional<MemoryPlace> place_of(const void* address) const override {
    return mover_ ? mover_->place_of(address) : std::nullopt;
  }
  MemoryPlace place_of_remote(std::uint64_t remote_handle) const override;
  bool orders_by_streams() const override { return true; }
  Copier* copier() override { return mover_.get(); }
  Result<std::shared_ptr<StreamGate>> hold_stream(void* stream) override {
    return mover_ ? mover_->hold_stream(stream) : GpuAccess::hold_stream(stream);
  }
  Reach view(std::uint64_t remote_handle, int gpu, Bits accepted, View& out, Status& why) override;
  Reach view_own(std::uint64_t local_handle, int gpu, Bits accepted, View& out, Status& why) override;
  void give_back(std::uint64_t number) override;
  std::vector<PeerIndex> holders(std::uint64_t local_handle) const override;
  Status put(const Put& put, void* stream) override {
    return mover_ ? mover_->put(put, stream) : Status(ErrorCode::unsupported, "the mapping is for CPUs");
  }
  Status wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) override {
    return mover_ ? mover_->wait(wait, ended, stream) : GpuAccess::wait(wait, ended, stream);
  }

  struct WatchedPair {  // a pair through which the peer may still access memory
    std::shared_ptr<Pair> pair;
    Pair::Mark mark;
    PeerIndex peer = 0;
    bool recalled = false;  // the peer was asked to give its views back
  };
  struct Deregistration {
    std::uint64_t handle = 0;
    std::vector<WatchedPair> marks;  // accesses in progress when it began
    Time since = 0;
    bool stuck_reported = false;  // the peers that hold it up
    bool let_go = false;          // no device copies from or to it: the driver was told to let go of it
  };
  struct ActiveView {  // used by kernels or CPUs of this process
    View view;
    Mover::View by;
    RegionId region;
    PeerIndex peer = kThisSide;  // the owner of the region
    std::shared_ptr<Pair> pair;  // of a peer's region: has its hold
    std::uint32_t hold = 0;      // index in Direction::holds
    bool ended = false;
  };

  // connect.cc
  void offer(PeerIndex index, Peer& peer);
  void make_lane(Link& link, std::shared_ptr<Pair> pair);
  void link_is_up(Link& link);
  std::vector<std::byte> hello() override { return encode(Handshake()); }
  std::vector<std::byte> refusal(const Status& why) override;
  void give_up(Link& link, const Status& why) override;
  void leave(Link& link) override;
  void try_again(Link& link, Role role) override;
  void finish_leaving(Link& link);
  void await_copies();
  void unwatch(const Pair& pair);
  void poll_connections(Time now);  // sockets and processes: system calls, so not in every poll
  void poll_connection(Link& link, Time now);

  // dial.cc
  void dial(Link& link);
  void ask_to_join(Link& link, Time now);  // on the peer's socket; repeated while its queue is full
  void receive_welcome(Link& link, Time now);
  void dial_failed(Link& link, const Status& why);
  void on_join_request(JoinRequest request, Time now);
  void take_join_request(Link& link, Time now);  // a waiting one, if it is time
  void count_flap(Link& link);
  void welcome(Link& link, JoinRequest request);
  void check_joined(Link& link, Time now);
  void abandon(Link& link, const Status& why);  // a welcomed link: it waits again, or is up and broken
  void attempt_failed(const Link& link, const Status& why);
  Note introduce(Note::Kind kind, const Token& token, std::uint32_t attempt, const Pair& pair) const;
  Status join(Pair& pair, const Note& note, std::vector<sys::Fd>& fds);
  void probe_cma(Pair& pair, std::uint64_t nonce_at);

  // files.cc
  void read_notes(Link& link);
  void take_note(Link& link, const Note& note, std::vector<sys::Fd>& fds);
  void send_note(Link& link, const Note& note, int fd = -1);
  bool send_waiting(Link& link);  // false: some notes still wait
  std::shared_ptr<PeerFile> file_of(Peer& peer, const Key& key, bool writable);
  static void settle(Remote& remote);  // takes the method over from its file
  [[nodiscard]] bool both_are_host_memory(std::uint64_t local_handle, const Imports::Entry& import) const;
  Reach reach_by_mover(std::uint64_t local_handle, const Imports::Entry& import, std::string& why);
  [[nodiscard]] std::string describe_path(const Imports::Entry& import);
  void ask_for(Link& link, PeerFile& file);
  void ask_next(Link& link);
  void answer_ask(Link& link, const Note& ask);
  void take_file(Link& link, const Note& note, std::vector<sys::Fd>& fds);
  void tell_forgotten(Link& link, const Note& forget);
  void forget_file(Link& link, std::uint32_t number);
  void forget_ended(Link& link);

  // views.cc
  [[nodiscard]] bool is_accepted(Bits accepted, Status& why) const;
  void add_view(ActiveView active, std::byte* address, View& out);
  void end_views(const Pair& pair, const Status& why);
  void end_views(PeerIndex peer, RegionId region, const Status& why);
  void end_view(ActiveView& active, const Status& why);
  bool viewed_here(std::uint64_t local_handle) const;
  void recall(WatchedPair& mark, std::uint64_t handle);
  void keep_while_touched(PeerIndex peer, const std::shared_ptr<Pair>& pair);
  void forget_retired();
  void await_retired(Time until);

  // links that must not fall asleep
  void wake_links(Time now);
  [[nodiscard]] std::string describe_device_path(const Imports::Entry& import);
  [[nodiscard]] bool is_touched(const Imports::Entry& import);

  // transport.cc
  static Time next_touch_check(Time since, Time now);
  void finish_fence(Link& link);
  void finish_deregistrations();
  void report_stuck(const Pair& pair, const Pair::Mark& mark);

  const HostOptions options_;
  std::unique_ptr<Mover> mover_;
  Exports exports_;
  JoinSocket join_socket_{runtime_};
  std::vector<WatchedPair> retired_;  // of disconnected peers that still access memory; also once closed
  std::vector<ActiveView> views_;
  std::uint64_t next_view_ = 1;
  std::vector<Deregistration> deregistrations_;
  Time connections_at_ = 0;      // the next poll_connections()
  Time wake_links_at_ = kNever;  // the next wake_links(); never unless the mover keeps links awake
  bool slept_ = false;
};

Result<std::unique_ptr<Transport>> open(RegionTable& regions, Runtime& runtime, HostOptions options,
                                        std::unique_ptr<Mover> mover = nullptr);

}  // namespace fairway::transport::host

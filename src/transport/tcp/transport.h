#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/optional_calls.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/tcp.h"

namespace fairway::transport::tcp {

// The contract's state machine: peers, links and their epochs, handles. Each link is a lane (lane.h). Owner: the
// worker.
//   transport.cc  using lanes
//   connect.cc    connecting and reconnecting lanes, disconnecting peers
class TcpTransport final : public Transport, public ConnectsByItself, public TellsProgress {
 public:
  TcpTransport(RegionTable& regions, Runtime& runtime, const TcpOptions& options);
  ~TcpTransport() override { close(); }

  Status open();  // call first
  Status attach(Task& task) override;

  Status connect(PeerIndex peer, Role role) override;
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void disconnect(PeerIndex peer) override;

  Result<RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override;
  void deregister(std::uint64_t handle) override;
  Result<std::uint64_t> import(PeerIndex peer, const RemoteMemory& memory, std::span<const KeyBytes> keys) override;
  void release(std::uint64_t remote_handle) override;

  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  Time next_timer() const override { return timer_; }
  void fence(LinkId link) override;
  bool forgo(PeerIndex peer, std::uint64_t name) override;
  void reconnect(LinkId link) override;
  std::uint64_t moved(LinkId link) override;
  std::string why_stalled(LinkId link) override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) override;
  bool prepare_sleep() override;
  void close() override;

 private:
  enum class LinkState : std::uint8_t { free, dialing, pausing, waiting, up, down, fenced };
  struct Link {
    LinkId id;
    LinkState state = LinkState::free;
    PeerIndex peer = 0;
    DeviceIndex device = 0;
    std::uint16_t index = 0;    // of the lane within the session, equal at both ends
    std::uint32_t attempt = 0;  // counts the connections, equal at both ends
    std::unique_ptr<Lane> lane;
    // Initiator: while dialing. Acceptor: a connection that came before reconnect().
    std::unique_ptr<Channel> channel;
    std::array<std::byte, kHelloBytes> bytes{};  // of the hello that is sent or the welcome that is received
    std::size_t sent = 0, received = 0;
    std::uint32_t held_attempt = 0;
    std::uint32_t refused_attempts = 0;  // acceptor: refuses attempts up to this one
    bool was_up = false;
    Time deadline = kNever;
    std::uint16_t segment_bytes = 0;  // the most, since the way swallows longer ones; 0: as the interfaces allow
  };
  struct Peer {
    Role role = Role::initiator;
    bool failed = false;  // stays known, without links, until disconnect()
    std::array<std::byte, kTokenBytes> token{};
    std::uint16_t lanes = 0;
    std::vector<std::string> addresses;
    std::vector<std::uint32_t> slots;  // of links_, by index; kNoSlot: not made yet
    bool was_up = false;
    std::string reason;  // why the last attempt at a lane failed
  };
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

  // connect.cc
  [[nodiscard]] std::string lane_host() const;
  void offer(PeerIndex index, Peer& peer);
  void accept_offer(PeerIndex index, Peer& peer, const Handshake& message);
  const std::string& address_of(const Link& link);  // where to dial
  void limit_segments(Peer& peer, std::size_t address, std::uint16_t most_bytes);
  void dial(Link& link);
  void continue_dial(Link& link, Time now);
  void dial_failed(Link& link, const Status& why);
  bool receive_welcome(Link& link);  // true: the attempt has succeeded or failed
  void on_hello(std::unique_ptr<Channel> channel, const Hello& hello);
  void welcome(Link& link, std::unique_ptr<Channel> channel, std::uint32_t attempt);
  void link_is_up(Link& link, std::unique_ptr<Channel> channel, std::span<const std::byte> first);
  std::uint32_t make_link(PeerIndex peer_index, Peer& peer, std::uint16_t index);
  void fail_peer(PeerIndex index, Peer& peer, Status status, bool tell);
  void send_handshake(PeerIndex peer, const Handshake& message);
  void poll_connections(Time now);
  bool usable(const InterfaceAddress& address) const;
  [[nodiscard]] const InterfaceAddress* own_address(const std::string& local) const;

  // transport.cc
  Link* find(LinkId id);
  ErrorCode check(const Link& link, const Slice& slice, Command& out);
  void shorten_segments(Link& link);

  RegionTable& regions_;
  Runtime& runtime_;
  const TcpOptions options_;
  std::vector<InterfaceAddress> addresses_;  // of this host, usable; devices() has their interfaces
  Task* task_ = nullptr;
  Inbox inbox_{counters_};
  PendingConnections pending_;
  std::unordered_map<PeerIndex, Peer> peers_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> up_;  // slots of links that are up or down, not yet fenced
  ImportTable<> imports_;
  std::size_t next_lane_ = 0;  // the lane to poll first
  std::uint64_t turn_ = 0;     // polls so far
  std::uint32_t dialing_ = 0;  // links in that state
  Time timer_ = kNever;
  bool closed_ = false;
};

}  // namespace fairway::transport::tcp

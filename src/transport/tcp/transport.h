#pragma once

#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/runtime.h"
#include "transport/linked_transport.h"
#include "transport/optional_calls.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/tcp.h"

namespace fairway::transport::tcp {

enum class LinkState : std::uint8_t { free, dialing, pausing, waiting, up, down, fenced };

struct Link : LinkOf<LinkState> {
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

struct Peer : PeerOf<> {
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lanes = 0;
  std::vector<std::string> addresses;
};

// The contract's state machine: peers, links and their epochs, handles. Each link is a lane (lane.h). Owner: the
// worker.
//   transport.cc  using lanes
//   connect.cc    connecting and reconnecting lanes, disconnecting peers
class TcpTransport final : public LinkedTransport<Link, Peer, std::monostate, Inbox>,
                           public ConnectsByItself,
                           public TellsProgress {
 public:
  TcpTransport(RegionTable& regions, Runtime& runtime, const TcpOptions& options);
  ~TcpTransport() override { close(); }

  Status open();  // call first
  void exchange(PeerIndex peer, std::span<const std::byte> bytes) override;
  void deregister(std::uint64_t handle) override;
  std::size_t post(std::span<const Slice> slices) override;
  std::size_t poll(std::span<Event> events, Time now) override;
  void fence(LinkId link) override;
  bool forgo(PeerIndex peer, std::uint64_t name) override;
  std::uint64_t moved(LinkId link) override;
  std::string why_stalled(LinkId link) override;
  void cancel(SliceToken token) override;
  Reach reach(LinkId link, std::uint64_t local_handle, std::uint64_t remote_handle, std::string* path) override;
  bool prepare_sleep() override;
  void close() override;

 private:
  // connect.cc
  std::vector<std::byte> hello() override { return encode(Handshake()); }
  std::vector<std::byte> refusal(const Status& why) override;
  void give_up(Link& link, const Status& why) override;
  void leave(Link& link) override;
  void try_again(Link& link, Role role) override;
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
  void poll_connections(Time now);
  bool usable(const InterfaceAddress& address) const;
  [[nodiscard]] const InterfaceAddress* own_address(const std::string& local) const;

  // transport.cc
  ErrorCode check(const Link& link, const Slice& slice, Command& out);
  void shorten_segments(Link& link);

  const TcpOptions options_;
  std::vector<InterfaceAddress> addresses_;  // of this host, usable; devices() has their interfaces
  DataPort data_port_{runtime_};
  std::uint64_t turn_ = 0;     // polls so far
  std::uint32_t dialing_ = 0;  // links in that state
};

}  // namespace fairway::transport::tcp

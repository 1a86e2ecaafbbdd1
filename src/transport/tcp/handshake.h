#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "core/pending_connections.h"
#include "core/runtime.h"
#include "transport/tcp/frame.h"

// The handshake of two tcp transports, carried by control:
//
//   initiator -> acceptor   hello
//   acceptor -> initiator   offer: addresses to connect to, the session's token, the number of lanes per address
//   acceptor -> initiator   segments: the way to one of these addresses swallows longer ones than so many bytes, so
//                           the next connections to it use no longer ones
//   both directions         refused: why there will be no lane
//
// The rest goes over the lanes: the initiator connects, sends a hello with the token and gets a welcome.
namespace fairway::transport::tcp {

inline constexpr std::size_t kMaxAddresses = 16;
inline constexpr std::uint16_t kMaxLanesPerPeer = 32;
inline constexpr std::uint16_t kLeastSegment = 512;

struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, refused, segments } kind = Kind::hello;
  std::array<std::byte, kTokenBytes> token{};
  std::uint16_t lanes = 0;
  std::vector<std::string> addresses;  // "host:port"
  std::string reason;
  std::uint8_t address = 0;         // segments: which of the offer's
  std::uint16_t segment_bytes = 0;  // segments: at least kLeastSegment
};

std::vector<std::byte> encode(const Handshake& message);
// Errors: version_mismatch; protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

// Incoming connections at the data port, until their hello is complete. Owner: the transport's worker.
class DataPort {
 public:
  explicit DataPort(Runtime& runtime) : runtime_(runtime) {}

  Status listen(const std::string& address, Task& task);  // once
  std::string address() const { return listener_->address(); }
  // Accepts connections, and passes each complete hello with its connection to `on_hello`.
  using OnHello = std::function<void(std::unique_ptr<Channel>, const Hello&)>;
  void poll(Time now, const OnHello& on_hello);
  Time next() const { return pending_.next(); }  // poll by then, even without a wake-up
  void sleeps() { polls_ = 0; }                  // whoever sleeps hears of connections that wait
  void close();

 private:
  struct Incoming {
    std::unique_ptr<Channel> channel;
    std::array<std::byte, kHelloBytes> bytes{};
    std::size_t received = 0;
  };
  using Pending = PendingConnections<Incoming>;
  void accept(Time now);

  Runtime& runtime_;
  Task* task_ = nullptr;
  std::unique_ptr<Listener> listener_;
  Pending pending_{{.per_poll = 4, .evictable = 30 * kMillisecond, .pause = 2 * kMillisecond}};
  // Accept unannounced connections then, if the owner has not slept for a while: a costly system call.
  Time accept_at_ = 0;
  std::uint32_t polls_ = 0;  // since then
};

}  // namespace fairway::transport::tcp

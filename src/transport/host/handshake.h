#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "core/pending_connections.h"
#include "core/runtime.h"
#include "sys/local_socket.h"
#include "transport/host/segment.h"

// The messages of two shm or cuda transports outside the ring.
namespace fairway::transport::host {

using Token = std::array<std::byte, kNonceBytes>;

// Through control, authenticated:
//   initiator -> acceptor   hello
//   acceptor -> initiator   offer: the name of a local socket, and the token by which each side proves itself there
//   both directions         refused: why there will be no link
struct Handshake {
  enum class Kind : std::uint8_t { hello = 1, offer, refused } kind = Kind::hello;
  std::string socket;
  Token dialer{}, listener{};
  std::string reason;
};
std::vector<std::byte> encode(const Handshake& message);
// Errors: version_mismatch; protocol_error for anything that encode() of this version cannot have written.
Result<Handshake> decode_handshake(std::span<const std::byte> bytes);

// On the local socket, with descriptors:
//   dialer -> listener    hello: the segment, its region table
//   listener -> dialer    welcome: its region table; or refused: why not
//   both directions       ask: for a file of the other side; file, no_file: the answer; forget: the file has no region
//                         any more; recall: give back your views of that region; ring: wakes a sleeping worker
struct Note {
  enum class Kind : std::uint8_t {
    hello = 1,
    welcome,
    ask,
    file,
    no_file,
    forget,
    recall,
    ring,
    refused
  } kind = Kind::ask;
  Token token{};               // hello, welcome: proves the sender
  std::uint32_t attempt = 0;   // hello, welcome
  std::uint32_t regions = 0;   // hello, welcome: slots of its table
  std::uint64_t nonce_at = 0;  // hello, welcome: address of the segment's nonce in the sender's memory
  std::uint32_t file = 0;      // ask and its answers, forget: the owner's number of the file
  bool writable = false;       // ask and its answers
  std::uint32_t part = 0;      // ask and its answers: which descriptor, for memory with several
  std::string reason;          // no_file, refused
  RegionId region;             // recall

  static constexpr std::size_t kHelloFds = 2, kWelcomeFds = 1;
};
inline constexpr std::array<std::byte, 3> kRing{std::byte{kVersion & 0xff}, std::byte{kVersion >> 8},
                                                std::byte{static_cast<std::uint8_t>(Note::Kind::ring)}};
std::vector<std::byte> encode(const Note& note);
Result<Note> decode_note(std::span<const std::byte> bytes);

// The key of a region in a memory file or a device allocation; other regions have none.
struct Key {
  std::uint32_t file = 0;         // the owner's number of the file or allocation, never reused
  std::uint64_t offset = 0;       // of the region in it
  std::vector<std::byte> handle;  // of a device allocation, for the driver; empty: a memory file
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

struct JoinRequest {  // a dialer's hello
  sys::LocalSocket socket;
  Note note;
  std::vector<sys::Fd> fds;
};

// Incoming connections at the local socket, until their hello is read. Connections of other users are refused. Owner:
// the transport's worker.
class JoinSocket {
 public:
  explicit JoinSocket(Runtime& runtime) : runtime_(runtime) {}

  Status listen(Task& task);  // once
  const std::string& name() const { return name_; }
  bool listening() const { return static_cast<bool>(listener_); }
  bool any() const { return !pending_.empty(); }
  // Accepts connections, and passes each hello to `on_request`.
  using OnRequest = std::function<void(JoinRequest)>;
  void poll(Time now, const OnRequest& on_request);
  Time next() const { return pending_.next(); }  // poll by then, even without a wake-up
  void close();

 private:
  using Pending = PendingConnections<sys::LocalSocket>;
  void accept(Time now);
  bool receive(sys::LocalSocket& socket, bool late, const OnRequest& on_request);  // true: done with it

  Runtime& runtime_;
  Task* task_ = nullptr;
  sys::LocalListener listener_;
  std::string name_;
  // While it pauses, the listener does not wake the worker.
  Pending pending_{{.per_poll = 16, .evictable = 100 * kMillisecond, .pause = 5 * kMillisecond}};
};

}  // namespace fairway::transport::host

#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/frame.h"
#include "control/handshake.h"
#include "core/runtime.h"

namespace fairway::control {

// State shared by all connections of one control instance. Owned by the control thread.
struct Wire {
  Wire(std::string_view job_key, Rng& rng_in) : key(job_key), rng(rng_in) {}

  JobKey key;
  Rng& rng;
  VersionRange versions;
  std::array<std::byte, 16384> chunk{};  // receive buffer; bytes move on to the connection that read them
};

// One channel from the first handshake byte (hello) to the last frame. Owned by the control thread. An idle connection
// holds about 300 bytes.
class Connection {
 public:
  Connection(Wire& wire, std::unique_ptr<Channel> channel, Role role);

  // Reads and writes as much as the channel allows, and advances the handshake.
  void pump();
  bool is_open() const { return phase_ == Phase::open; }  // both sides proved that they know the job's key
  // Ok while the connection works. After a failure, next() still returns the frames that arrived before it.
  const Status& failure() const { return failure_; }
  // The next received frame, valid until the next pump(). Only once is_open().
  std::optional<Frame> next();
  // The channel may hold more than one pump() reads: call pump() again before sleeping.
  bool has_unread() const { return has_unread_; }
  // Channel::announce_in(). What the list does not tell of, is_busy() does.
  bool announce_in(std::vector<std::uint32_t>* list, std::uint32_t number) {
    return channel_->announce_in(list, number);
  }
  // Has something to do at the next step: pump() it again then.
  bool is_busy() const {
    return channel_->announced() || has_unread_ || unsent() != 0 || !failure_.is_ok() || !send_failure_.is_ok();
  }
  void drop_used();  // the bytes of frames that next() returned

  template <class Body>
  void put(const Body& body) {
    std::array<std::byte, kMaxBody> bytes;
    ByteWriter out(bytes);
    body.write(out);
    put(Body::kType, out.written());
  }
  void put(FrameType type, std::span<const std::byte> body);
  void flush();
  std::size_t unsent() const { return out_.size() - out_sent_; }

  std::string peer_address() const { return channel_->peer_address(); }

 private:
  enum class Phase : std::uint8_t { hello, proof, open };

  void send_hello();
  void send_raw(std::span<const std::byte> bytes);
  std::size_t wanted() const;
  void read();
  void advance();
  void on_hello(std::span<const std::byte> bytes);
  void on_proof(std::span<const std::byte> bytes);
  void on_verdict(std::span<const std::byte> bytes);
  void fail(Status status);
  std::optional<Mac> derive(std::string_view label, std::span<const std::byte> more = {});
  bool derive_keys();

  Wire& wire_;
  const std::unique_ptr<Channel> channel_;
  const Role role_;
  Phase phase_ = Phase::hello;
  bool has_unread_ = false;
  Status failure_;
  Status send_failure_;  // sending failed; frames that arrived before are still read
  std::vector<std::byte> in_;
  std::size_t in_used_ = 0;
  std::vector<std::byte> out_;
  std::size_t out_sent_ = 0;

  // Exists only during the handshake.
  struct Transcript {
    HelloBytes ours{};
    HelloBytes theirs{};
    Mac proof{};  // the dialer's proof
  };
  std::unique_ptr<Transcript> transcript_;
  std::optional<Sealer> sealer_;
  std::optional<Opener> opener_;
};

// Connections that are finished but still have bytes to deliver. Each lingers until the peer closes, for at most 200
// ms; at most 256 linger at once. Closing a socket with unread input makes the kernel discard what was sent. Used on
// the control thread.
class ClosingConnections {
 public:
  void add(std::unique_ptr<Connection> connection, Time now);
  Time step(Time now);
  bool empty() const { return leaving_.empty(); }
  void clear() { leaving_.clear(); }

  static constexpr Time kLinger = 200 * kMillisecond;
  static constexpr std::size_t kMaxLingering = 256;

 private:
  struct Leaving {
    std::unique_ptr<Connection> connection;
    Time until;
  };
  std::vector<Leaving> leaving_;  // oldest first
};

}  // namespace fairway::control

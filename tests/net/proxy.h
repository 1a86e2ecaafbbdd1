#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "net/host.h"

namespace fairway::net {

// What a man in the middle does to bytes that pass. Called on the proxy's thread, one piece at a time.
class Meddler {
 public:
  struct Way {
    std::uint64_t connection = 0;  // numbered from 1 in the order of accept
    bool is_control = false;       // else a lane
    bool to_listener = false;      // else back to who dialed
  };
  enum class Verdict : std::uint8_t {
    pass,
    cut,    // the connection ends on both sides as if each had been reset, `passed` bytes of the piece having gone
    stall,  // nothing passes in this direction any more, until Proxy::release()
  };
  struct Piece {
    Way way;
    std::uint64_t at = 0;        // of the first byte in this direction's stream
    std::span<std::byte> bytes;  // may be changed
    std::size_t passed = 0;      // with cut
  };
  virtual ~Meddler() = default;
  virtual Verdict meddle(Piece& piece) = 0;
};

// Stands where a peer's address is, in another host than the peer: accepts there and dials the same address in the
// peer's own host, on control's port and on every port that a lane may have. Both hosts hold the address, and no cable
// joins them, so nothing gets past. Owner of one thread.
class Proxy {
 public:
  struct Place {
    std::string address;  // IPv4, of both hosts
    std::uint16_t control = 0;
    std::uint16_t first_lane = 0;
    std::uint16_t lanes = 0;  // how many ports
  };
  Proxy(const Host& outside, const Host& inside, const Place& place);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void set(std::shared_ptr<Meddler> meddler);  // null: everything passes
  void release();                              // what stalls goes on
  [[nodiscard]] std::uint64_t connections() const { return accepted_.load(); }

 private:
  struct Direction {
    std::vector<std::byte> held;  // read and meddled with, not yet written
    std::size_t sent = 0;
    std::uint64_t at = 0;
    bool ended = false;   // its source has said its last
    bool closed = false;  // and its sink was told
    bool stalled = false;
    bool cut_after = false;
  };
  struct Connection {
    Meddler::Way way;
    sys::Fd dialer, listener;
    Direction forth, back;
    bool connected = false;
  };
  struct Port {
    sys::Fd socket;
    std::uint16_t number = 0;
  };
  void run();
  void accept(Port& port);
  bool move(Connection& connection, bool forth);  // false: the connection is over
  bool take(Connection& connection, bool forth);
  static void reset(Connection& connection);

  const Host& inside_;
  const Place place_;
  sys::Fd wake_;
  std::vector<Port> ports_;
  std::list<Connection> connections_;
  std::uint16_t next_source_ = 10'000;
  std::mutex mutex_;  // guards meddler_ and the stalled marks
  std::shared_ptr<Meddler> meddler_;
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace fairway::net

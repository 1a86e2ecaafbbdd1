#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "sim/simulation.h"

namespace fairway::sim {

class SimNetwork;

// One TCP connection. Lives as long as the simulation, because segments in flight refer to it.
struct Connection {
  // One direction, identified by the sender's side.
  struct Stream {
    std::vector<std::byte> bytes;  // sent and not read yet; [0, read) is consumed, [read, arrived) is readable
    std::size_t read = 0;
    std::size_t arrived = 0;
    std::size_t acknowledged = 0;  // of `bytes`: the sender knows that they arrived
    std::size_t held = 0;          // in the window: sent, and the sender does not know yet that they were read
    bool full = false;             // it took less than it was given: the sender waits for room
    bool stuck = false;            // a segment was swallowed, and is sent again and again
    Time last_arrival = 0;         // TCP preserves order
    bool finished = false;         // the sender closed in order
    bool fin_arrived = false;
  };
  struct End {
    SimNetwork* network = nullptr;  // null: not accepted yet
    Task* task = nullptr;           // null: no task to wake (closed, or not accepted yet)
    Stream out;
    ErrorCode broken = ErrorCode::ok;  // permanent error, once it arrived here
    bool closed = false;               // this side's Channel was destroyed
    bool connected = false;
    Time full_until = 0;    // it takes nothing
    bool announced = true;  // something may have come since the last receive() that found nothing
    std::uint32_t number = 0;
    std::vector<std::uint32_t>* list = nullptr;  // of Channel::announce_in()
  };
  Simulation* simulation = nullptr;
  std::string address;  // the listener's address
  std::uint32_t segment_bytes = 0;
  End ends[2];  // 0 dialed, 1 accepted
};

class SimListener;

// A host's sockets, at its place in the network. Segments are delayed, arrive split differently, stall during a
// partition, and are lost only with a reset. It knows nothing of what runs on the host: it wakes tasks.
class SimNetwork final : public Network {
 public:
  static constexpr std::uint32_t kSegment = 1448;  // bytes

  // `index`: of the host. `place`: its address; a restarted machine is a new host at the same place.
  SimNetwork(Simulation& simulation, std::size_t index, std::size_t place);
  ~SimNetwork() override;

  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override {
    return dial_in_segments(address, kSegment, wakes);
  }
  Result<std::unique_ptr<Channel>> dial_in_segments(const std::string& address, std::uint32_t most_bytes,
                                                    Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;
  Result<std::vector<InterfaceAddress>> addresses() override;

  std::size_t index() const { return index_; }
  std::string address() const {
    return "10.0." + std::to_string((place_ + 1) / 256) + "." + std::to_string((place_ + 1) % 256);
  }

  // What the kernel does when a process dies: peers see resets, and later connections are refused.
  void kill();
  bool dead() const { return dead_; }
  // Cuts every connection with that host, as a firewall or a broken switch may: both ends see a reset after a while.
  void cut(SimNetwork& other);

 private:
  friend class SimListener;
  friend class SimChannel;
  static void syn(void* connection, std::uint64_t, std::uint64_t);
  static void answer(void* connection, std::uint64_t refused, std::uint64_t);
  SimListener* find(const std::string& address);

  Simulation& simulation_;
  const std::size_t index_, place_;
  bool dead_ = false;
  std::vector<SimListener*> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;  // dialed from this host
  std::vector<Connection*> accepted_;
  std::uint16_t next_port_ = 40000;
};

}  // namespace fairway::sim

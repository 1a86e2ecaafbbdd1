#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "sim/simulation.h"

namespace fairway::sim {

struct SimTask;

// One TCP connection. Lives as long as the simulation, because segments in flight refer to it.
struct Connection {
  // One direction, identified by the sender's side.
  struct Stream {
    std::vector<std::byte> bytes;  // sent and not read yet; [0, read) is consumed, [read, arrived) is readable
    std::size_t read = 0;
    std::size_t arrived = 0;
    Time last_arrival = 0;  // TCP preserves order
    bool finished = false;  // the sender closed in order
    bool fin_arrived = false;
  };
  struct End {
    Host* host = nullptr;
    SimTask* task = nullptr;  // null: no task to wake (closed, or not accepted yet)
    Stream out;
    ErrorCode broken = ErrorCode::ok;  // permanent error, once it arrived here
    bool closed = false;               // this side's Channel was destroyed
    bool connected = false;
  };
  Simulation* simulation = nullptr;
  std::string address;  // the listener's address
  End ends[2];          // 0 dialed, 1 accepted
};

class SimListener;

// A host's sockets. Segments are delayed, arrive split differently, stall during a partition, and are lost only with a
// reset.
class SimNetwork final : public Network {
 public:
  explicit SimNetwork(Host& host) : host_(host) {}
  ~SimNetwork() override;

  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;
  Result<std::vector<InterfaceAddress>> addresses() override;

  // What the kernel does when a process dies: peers see resets, and later connections are refused.
  void reset_all();
  // Cuts every connection with that host, as a firewall or a broken switch may: both ends see a reset after a while.
  void cut(Host& other);

 private:
  friend class SimListener;
  friend class SimChannel;
  static void syn(void* connection, std::uint64_t, std::uint64_t);
  static void answer(void* connection, std::uint64_t refused, std::uint64_t);
  SimListener* find(const std::string& address);

  Host& host_;
  std::vector<SimListener*> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;  // dialed from this host
  std::vector<Connection*> accepted_;
  std::uint16_t next_port_ = 40000;
};

}  // namespace fairway::sim

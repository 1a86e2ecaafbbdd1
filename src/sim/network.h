#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "sim/simulation.h"

namespace fairway::sim {

struct SimTask;

// One TCP connection. Lives as long as the simulation, because segments on their way name it.
struct Connection {
  // One direction, named after its sender's side.
  struct Stream {
    std::vector<std::byte> bytes;  // sent and not read yet; [0, read) is consumed, [read, arrived) can be read
    std::size_t read = 0;
    std::size_t arrived = 0;
    Time last_arrival = 0;  // TCP keeps order
    bool finished = false;  // the sender closed in order
    bool fin_arrived = false;
  };
  struct End {
    Host* host = nullptr;
    SimTask* task = nullptr;  // null: nobody to wake (closed, or not accepted yet)
    Stream out;
    ErrorCode broken = ErrorCode::ok;  // final, once it arrived here
    bool closed = false;               // this side's Channel is gone
    bool connected = false;
  };
  Simulation* simulation = nullptr;
  std::string address;  // the listener's
  End ends[2];          // 0 dialed, 1 accepted
};

class SimListener;

// A host's sockets. Segments take their time, arrive re-cut, stall while a partition lasts and are lost with a reset
// only.
class SimNetwork final : public Network {
 public:
  explicit SimNetwork(Host& host) : host_(host) {}
  ~SimNetwork() override;

  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;
  Result<std::vector<InterfaceAddress>> addresses() override;

  // What the kernel does when a process dies: peers see resets, later ones are refused.
  void reset_all();
  // Cuts every connection with that host (both ends see a reset after a while), as a firewall or a broken switch may.
  void cut(Host& other);

 private:
  friend class SimListener;
  friend class SimChannel;
  static void syn(void* connection, std::uint64_t, std::uint64_t);
  static void answer(void* connection, std::uint64_t refused, std::uint64_t);
  SimListener* find(const std::string& address);

  Host& host_;
  std::vector<SimListener*> listeners_;
  std::vector<std::unique_ptr<Connection>> connections_;  // dialed here
  std::vector<Connection*> accepted_;
  std::uint16_t next_port_ = 40000;
};

}  // namespace fairway::sim

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_net/connection.h"
#include "nccl_net/settings.h"

namespace fairway::nccl {

// What the connecting end needs, within NCCL's 128 bytes. It travels through NCCL's bootstrap, and NCCL passes the same
// copy to every repeated call of connect(), so it also holds the ticket of the pending connection.
struct Handle {
  std::uint32_t magic = 0;
  std::uint32_t beyond_this_host = 0;
  std::uint64_t process = 0;  // the listener's
  std::uint64_t host = 0;
  PortId listener;
  char address[72] = {};
  std::uint32_t engine = 0;  // index of the listener's engine within its device
  std::uint32_t unused = 0;
  std::uint64_t ticket = 0;  // set by the connecting process
};
static_assert(sizeof(Handle) <= abi::kHandleBytes);

// Accepts connections on one device.
class Listener final : public Port {
 public:
  explicit Listener(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
  std::shared_ptr<Receiver> accept();  // null: no connection waits
  void on_message(const Message& message, PeerId from) override;
  void on_peer_down(PeerId peer, const Status& reason) override;
  Endpoint& endpoint() { return *endpoint_; }

 private:
  struct Hello {
    PeerId peer;
    PortId sender;
  };
  const std::shared_ptr<Endpoint> endpoint_;
  std::mutex mutex_;  // guards hellos_
  std::deque<Hello> hellos_;
};

// A device as NCCL sees it. It has several engines that use its rails, with connections assigned round-robin, and one
// for connections within the process, because an engine does not connect to itself.
struct Device {
  Settings settings;
  std::vector<std::string> rails;  // the entries of FAIRWAY_RAILS that make up the device
  std::vector<int> parts;          // device numbers; only its own number unless fused
  std::string name;
  std::string pci_path;  // empty: not a NIC
  int speed_mbps = 0;
  int port = 1;  // of the NIC
  float latency_us = 0;
  std::uint64_t guid = 0;
  bool gpu_memory = false;
  std::vector<std::shared_ptr<Endpoint>> engines;  // empty: not opened yet
  std::shared_ptr<SendCount> sends = std::make_shared<SendCount>(0);
  std::uint32_t next_engine = 0;       // of the next listener
  std::shared_ptr<Endpoint> loopback;  // for connections within the process; opened on demand

  // Whether GPU memory goes through NICs, which register it by its file descriptor.
  [[nodiscard]] bool by_nics() const { return gpu_memory && settings.beyond_this_host(); }
};

// All state of the plugin in one process, from the first init to the last finalize. Any thread.
class Network {
 public:
  static Result<std::unique_ptr<Network>> open(const Environment& environment, const Log& log);
  ~Network();

  [[nodiscard]] int devices();
  // The device's properties; opens the device. Error: out_of_range when there is no such device.
  Result<const Device*> device(int number);
  // Fuses physical devices into a virtual one and returns its number.
  Result<int> fuse(const int* parts, int count);
  Result<std::shared_ptr<Listener>> listen(int device, Handle& handle);
  // Null: not connected yet. The handle keeps the ticket.
  Result<std::shared_ptr<Sender>> connect(int device, Handle& handle);

 private:
  struct Attempt;
  Network(Settings settings, const Log& log);
  Status open_device(Device& device);
  Result<std::shared_ptr<Endpoint>> endpoint_for(int device, const Handle& handle);
  static void dial(const std::shared_ptr<Attempt>& attempt, const Handle& handle);

  const Settings settings_;
  const Log& log_;
  BackgroundTasks background_;
  std::uint64_t process_ = 0, host_ = 0;  // written into handles
  std::mutex mutex_;                      // guards all below
  std::deque<Device> devices_;
  std::map<std::uint64_t, std::shared_ptr<Attempt>> attempts_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace fairway::nccl

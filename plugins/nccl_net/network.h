#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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
class Listener final : public Port, public std::enable_shared_from_this<Listener> {
 public:
  explicit Listener(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
  void close();                        // tells those who were not accepted
  std::shared_ptr<Receiver> accept();  // null: no connection waits
  void on_message(const Message& message, PeerId from) override;
  void on_peer_down(PeerId peer, const Status& reason) override;

 private:
  void refuse(PeerId peer, PortId sender);
  struct Hello {
    PeerId peer;
    PortId sender;
  };
  const std::shared_ptr<Endpoint> endpoint_;
  std::mutex mutex_;  // guards the next two
  std::deque<Hello> hellos_;
  bool closed_ = false;
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
  // `fused`: devices that NCCL had made of others before, by their parts. They have their numbers again until NCCL
  // counts the devices, since it counts only to begin anew.
  static Result<std::unique_ptr<Network>> open(const Environment& environment, const Log& log,
                                               const std::vector<std::vector<int>>& fused = {});
  ~Network();

  [[nodiscard]] int devices();
  [[nodiscard]] std::vector<std::vector<int>> fused();
  // The device's properties; opens the device. Error: out_of_range when there is no such device.
  Result<const Device*> device(int number);
  // Fuses physical devices into a virtual one and returns its number.
  Result<int> fuse(const int* parts, int count);
  Result<std::shared_ptr<Listener>> listen(int device, Handle& handle);
  // Null: not connected yet. The handle keeps the ticket.
  Result<std::shared_ptr<Sender>> connect(int device, Handle& handle);

 private:
  struct Dial;
  Network(Settings settings, const Log& log);
  Status open_device(Device& device);
  Result<std::shared_ptr<Endpoint>> endpoint_for(int device, const Handle& handle);
  std::shared_ptr<Dial> dial(std::shared_ptr<Endpoint> endpoint, const std::string& address);
  [[nodiscard]] std::size_t physical() const { return std::max<std::size_t>(settings_.rails.size(), 1); }
  int add_fused(std::vector<int> parts);

  const Settings settings_;
  const Log& log_;
  BackgroundTasks background_;
  std::uint64_t process_ = 0, host_ = 0;  // written into handles
  std::mutex mutex_;                      // guards all below
  std::deque<Device> devices_;
  bool kept_ = false;                                        // it has fused devices of before that nobody has named yet
  std::map<std::uint64_t, std::shared_ptr<Dial>> attempts_;  // by ticket, of connections that NCCL waits for
  std::map<std::pair<Endpoint*, std::string>, std::shared_ptr<Dial>> dials_;  // the newest to each address
  std::uint64_t next_ticket_ = 1;
};

}  // namespace fairway::nccl

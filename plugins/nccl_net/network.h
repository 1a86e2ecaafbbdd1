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

// What the connecting end needs, within NCCL's 128 bytes. It travels through NCCL's bootstrap and comes back to
// connect() again and again, so the ticket of a connection that is being made lies in it too.
struct Handle {
  std::uint32_t magic = 0;
  std::uint32_t beyond_this_host = 0;
  std::uint64_t process = 0;  // of the listener
  std::uint64_t host = 0;
  PortId listener;
  char address[72] = {};
  std::uint32_t engine = 0;  // of the listener's device
  std::uint32_t unused = 0;
  std::uint64_t ticket = 0;  // the connecting process's own
};
static_assert(sizeof(Handle) <= abi::kHandleBytes);

// Where others connect to, on one device.
class Listener final : public Port {
 public:
  explicit Listener(std::shared_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
  std::shared_ptr<Receiver> accept();  // null: nobody yet
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

// What NCCL calls a device: engines with its rails, to which connections are dealt in turn, and one for connections
// within the process, since an engine does not connect to itself.
struct Device {
  Settings settings;
  std::vector<std::string> rails;  // of FAIRWAY_RAILS, what it is made of
  std::vector<int> parts;          // device numbers; itself alone where nothing was fused
  std::string name;
  std::string pci_path;  // empty: it is no NIC
  int speed_mbps = 0;
  int port = 1;  // of the NIC
  float latency_us = 0;
  std::uint64_t guid = 0;
  bool gpu_memory = false;
  std::vector<std::shared_ptr<Endpoint>> engines;  // none: not opened yet
  std::shared_ptr<SendCount> sends = std::make_shared<SendCount>(0);
  std::uint32_t next_engine = 0;     // of a listener
  std::shared_ptr<Endpoint> mirror;  // for connections within the process, opened when there is one

  // Its GPU memory goes by NICs, which are given it by its descriptor.
  [[nodiscard]] bool by_nics() const { return gpu_memory && settings.beyond_this_host(); }
};

// All of the plugin in one process, from the first init to the last finalize. Any thread.
class Network {
 public:
  static Result<std::unique_ptr<Network>> open(const Environment& environment, const Log& log);
  ~Network();

  [[nodiscard]] int devices();
  // The device's properties, opened. out_of_range: no such device.
  Result<const Device*> device(int number);
  // A device of those, which must be physical ones. Its number.
  Result<int> fuse(const int* parts, int count);
  Result<std::shared_ptr<Listener>> listen(int device, Handle& handle);
  // Null: not yet. The handle keeps the ticket.
  Result<std::shared_ptr<Sender>> connect(int device, Handle& handle);

 private:
  struct Attempt;
  Network(Settings settings, const Log& log);
  Status open_device(Device& device);
  Result<std::shared_ptr<Endpoint>> endpoint_for(int device, const Handle& handle);
  static void dial(const std::shared_ptr<Attempt>& attempt, const Handle& handle);

  const Settings settings_;
  const Log& log_;
  Jobs jobs_;
  std::uint64_t process_ = 0, host_ = 0;  // in handles
  std::mutex mutex_;                      // guards all below
  std::deque<Device> devices_;
  std::map<std::uint64_t, std::shared_ptr<Attempt>> attempts_;
  std::uint64_t next_ticket_ = 1;
};

}  // namespace fairway::nccl

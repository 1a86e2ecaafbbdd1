#include "nccl_net/network.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>

#include "nccl_net/machine.h"
#include "nccl_net/nccl_settings.h"
#include "nccl_net/nic.h"

namespace fairway::nccl {
namespace {

constexpr std::uint32_t kMagic = 0x324e5746;  // "FWN2"
constexpr std::size_t kMostHellos = 4096;

// Makes the device use the rail. A port of an RDMA device goes to `verbs`, and TCP keeps the interfaces of its address.
void use(const std::string& rail, Device& device) {
  EngineOptions& engine = device.settings.engine;
  (read_nic(rail).rdma ? engine.rdma.devices : engine.interfaces).push_back(rail);
  device.rails.push_back(rail);
}

}  // namespace

// ---- listening ----

void Listener::on_message(const Message& message, PeerId from) {
  if (message.kind != Message::Kind::hello) return;
  const std::lock_guard lock(mutex_);
  if (hellos_.size() < kMostHellos) hellos_.push_back({from, message.from});
}

void Listener::on_peer_down(PeerId peer, const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(hellos_, [&](const Hello& hello) { return hello.peer == peer; }) != 0)
    endpoint_->log().warn("accept: a peer disconnected before it was accepted: " + reason.to_string());
}

std::shared_ptr<Receiver> Listener::accept() {
  endpoint_->pump();
  const std::lock_guard lock(mutex_);
  if (hellos_.empty()) return nullptr;
  const Hello hello = hellos_.front();
  hellos_.pop_front();
  auto receiver = std::make_shared<Receiver>(endpoint_, hello.peer, hello.sender);
  endpoint_->add(receiver);
  return receiver;
}

// ---- the process ----

// One connection attempt, on a thread that may block.
struct Network::Attempt {
  std::shared_ptr<Endpoint> endpoint;
  std::mutex mutex;  // guards the members below
  bool done = false;
  Status status;
  std::shared_ptr<Sender> sender;
};

Network::Network(Settings settings, const Log& log) : settings_(std::move(settings)), log_(log) {
  std::random_device random;
  process_ = (std::uint64_t{random()} << 32 | random()) | 1;
  host_ = host_identity();
}

Network::~Network() {
  const std::lock_guard lock(mutex_);
  for (Device& device : devices_) {
    if (device.loopback != nullptr) device.loopback->close();
    for (const auto& engine : device.engines) engine->close();
  }
}

Result<std::unique_ptr<Network>> Network::open(const Environment& environment, const Log& log) {
  auto settings = read_settings(environment);
  if (!settings) return settings.status();
  std::unique_ptr<Network> network(new Network(std::move(*settings), log));
  const std::vector<std::string>& rails = network->settings_.rails;
  for (std::size_t i = 0; i < std::max<std::size_t>(rails.size(), 1); ++i) {
    Device& device = network->devices_.emplace_back();
    device.settings = network->settings_;
    device.parts = {static_cast<int>(i)};
    if (!rails.empty()) use(rails[i], device);
  }
  const auto first = network->device(0);
  if (!first) return first.status();
  const char* protocols = environment("NCCL_PROTO");
  if (protocols != nullptr && names_ll128(protocols) && !(*first)->gpu_memory)
    return Status(ErrorCode::invalid_argument,
                  "NCCL_PROTO is \"" + std::string(protocols) +
                      "\", but LL128 lines may tear in host memory: leave LL128 out, or see "
                      "FAIRWAY_GPU_MEMORY (" +
                      why_no_gpu_memory(**first) + ")");
  if (const std::string why = too_many_channels(environment); !why.empty()) log.warn(why);
  return network;
}

int Network::devices() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(devices_.size());
}

Result<const Device*> Network::device(int number) {
  const std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<std::size_t>(number) >= devices_.size())
    return Status(ErrorCode::out_of_range, "there is no device " + std::to_string(number));
  Device& device = devices_[static_cast<std::size_t>(number)];
  if (const Status status = open_device(device); !status) return status;
  return &device;
}

Status Network::open_device(Device& device) {
  if (!device.engines.empty()) return {};
  auto opened = Endpoint::open(device.settings, log_, background_, device.sends);
  if (!opened) return opened.status();
  if (device.settings.gpu_memory && device.settings.beyond_this_host() && (*opened)->has("verbs")) {
    // Between hosts GPU memory goes through NICs or not at all. Staging it would need driver calls that copy it and pin
    // memory on demand; both may wait for the very kernel that waits for the bytes.
    auto& names = device.settings.engine.transports = (*opened)->transports();
    std::erase_if(names, [](const std::string& name) { return name == "cuda" || name == "staged"; });
    (*opened)->close();
    opened = Endpoint::open(device.settings, log_, background_, device.sends);
    if (!opened) return opened.status();
  }
  device.engines.push_back(std::move(*opened));
  describe(device, host_);
  for (std::uint32_t count = engines_of(device); device.engines.size() < count;) {
    opened = Endpoint::open(device.settings, log_, background_, device.sends);
    if (!opened) return opened.status();
    device.engines.push_back(std::move(*opened));
  }
  std::string addresses;
  for (const auto& engine : device.engines)
    addresses += (addresses.empty() ? "" : " and ") + engine->engine().address();
  const std::string& why_there = device.settings.why_there;
  log_.info("device " + device.name + " listens on " + addresses + (why_there.empty() ? "" : " (" + why_there + ")") +
                ", " + (device.gpu_memory ? "GPU and host memory" : "host memory only: " + why_no_gpu_memory(device)),
            abi::kInit | abi::kNet);
  return {};
}

Result<int> Network::fuse(const int* parts, int count) {
  const std::lock_guard lock(mutex_);
  Device fused;
  fused.settings = settings_;
  for (int i = 0; i < count; ++i) {
    if (parts[i] < 0 || static_cast<std::size_t>(parts[i]) >= settings_.rails.size())
      return Status(ErrorCode::invalid_argument,
                    "device " + std::to_string(parts[i]) + " is no rail: only devices of FAIRWAY_RAILS can be fused");
    fused.parts.push_back(parts[i]);
    use(settings_.rails[static_cast<std::size_t>(parts[i])], fused);
  }
  if (fused.parts.empty()) return Status(ErrorCode::invalid_argument, "a virtual device has at least one part");
  devices_.push_back(std::move(fused));
  return static_cast<int>(devices_.size()) - 1;
}

// The endpoint that connects to the listener of that handle.
Result<std::shared_ptr<Endpoint>> Network::endpoint_for(int number, const Handle& handle) {
  if (const auto found = device(number); !found) return found.status();
  const std::lock_guard lock(mutex_);
  Device& device = devices_[static_cast<std::size_t>(number)];
  if (handle.process != process_) return device.engines[handle.engine % device.engines.size()];
  if (device.loopback == nullptr) {
    auto opened = Endpoint::open(device.settings, log_, background_, device.sends);
    if (!opened) return opened.status();
    device.loopback = std::move(*opened);
  }
  return device.loopback;
}

Result<std::shared_ptr<Listener>> Network::listen(int number, Handle& handle) {
  if (const auto found = device(number); !found) return found.status();
  std::shared_ptr<Endpoint> endpoint;
  handle = {};
  {
    const std::lock_guard lock(mutex_);
    Device& device = devices_[static_cast<std::size_t>(number)];
    handle.engine = device.next_engine++ % static_cast<std::uint32_t>(device.engines.size());
    endpoint = device.engines[handle.engine];
  }
  const std::string address = endpoint->engine().address();
  if (address.size() >= sizeof handle.address)
    return Status(ErrorCode::unsupported, "the address " + address + " is too long for NCCL's handle");
  auto listener = std::make_shared<Listener>(endpoint);
  endpoint->add(listener);
  handle.magic = kMagic;
  handle.beyond_this_host = settings_.beyond_this_host() ? 1 : 0;
  handle.process = process_;
  handle.host = host_;
  handle.listener = listener->id();
  std::memcpy(handle.address, address.data(), address.size());
  return listener;
}

Result<std::shared_ptr<Sender>> Network::connect(int number, Handle& handle) {
  std::shared_ptr<Attempt> attempt;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = attempts_.find(handle.ticket); handle.ticket != 0 && found != attempts_.end())
      attempt = found->second;
  }
  if (attempt == nullptr) {
    if (handle.magic != kMagic || handle.address[sizeof handle.address - 1] != '\0')
      return Status(
          ErrorCode::invalid_argument,
          "the other rank uses no Fairway plugin, or another version of it: set NCCL_NET=Fairway on every rank");
    if (handle.host != host_ && handle.beyond_this_host == 0)
      return Status(ErrorCode::unreachable,
                    "the other rank, on another host or in another network namespace, listens only on its own "
                    "host: give every rank the same FAIRWAY_JOB_KEY or FAIRWAY_JOB_KEY_FILE (`fairway nccl env` makes "
                    "one); then each listens on the address that its launcher's first rank is reached by. Or set "
                    "FAIRWAY_LISTEN to each host's address");
    auto endpoint = endpoint_for(number, handle);
    if (!endpoint) return endpoint.status();
    attempt = std::make_shared<Attempt>();
    attempt->endpoint = *endpoint;
    {
      const std::lock_guard lock(mutex_);
      handle.ticket = next_ticket_++;
      attempts_[handle.ticket] = attempt;
    }
    background_.add([attempt, target = handle] { dial(attempt, target); });
  }
  attempt->endpoint->pump();
  {
    const std::lock_guard lock(attempt->mutex);
    if (!attempt->done) return std::shared_ptr<Sender>();
  }
  const std::lock_guard lock(mutex_);
  attempts_.erase(handle.ticket);
  handle.ticket = 0;
  if (!attempt->status) return attempt->status;
  return attempt->sender;
}

void Network::dial(const std::shared_ptr<Attempt>& attempt, const Handle& handle) {
  Endpoint& endpoint = *attempt->endpoint;
  const auto peer = endpoint.engine().connect(handle.address, endpoint.connect_timeout());
  std::shared_ptr<Sender> sender;
  if (peer) {
    sender = std::make_shared<Sender>(attempt->endpoint, *peer, PortId{});
    endpoint.add(sender);
    Message hello;
    hello.kind = Message::Kind::hello;
    hello.from = sender->id();
    endpoint.post_until_accepted(*peer, handle.listener, hello);
  }
  const std::lock_guard lock(attempt->mutex);
  attempt->done = true;
  attempt->status = peer.status();
  if (attempt->status.code() == ErrorCode::authentication_failed)
    attempt->status = attempt->status.with_context(
        "the ranks have different job keys: run `fairway nccl env` once, where the launcher hands the environment on, "
        "or "
        "give all hosts one file by --key-file");
  attempt->sender = std::move(sender);
}

}  // namespace fairway::nccl

#include "nccl_net/network.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <utility>

#include "nccl_net/machine.h"
#include "nccl_net/nccl_settings.h"
#include "nccl_net/nic.h"

namespace fairway::nccl {
namespace {

constexpr std::uint32_t kMagic = 0x324e5746;  // "FWN2"
constexpr std::size_t kMostHellos = 4096;
constexpr std::size_t kMostAttempts = 1 << 16;

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
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && hellos_.size() < kMostHellos) return hellos_.push_back({from, message.from});
  }
  refuse(from, message.from);
}

void Listener::refuse(PeerId peer, PortId sender) {
  Message answer;
  answer.kind = Message::Kind::refused;
  endpoint_->post_until_accepted(peer, sender, answer);
}

void Listener::close() {
  const auto self = shared_from_this();
  endpoint_->remove(id());
  std::deque<Hello> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    left.swap(hellos_);
  }
  for (const Hello& each : left) refuse(each.peer, each.sender);
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

// On its way to an address, in a task, for all connections there.
struct Network::Dial {
  std::shared_ptr<Endpoint> endpoint;
  std::string address;
  std::mutex mutex;                       // guards `outcome`
  std::optional<Result<PeerId>> outcome;  // empty: under way
  std::optional<Result<PeerId>> result() {
    const std::lock_guard lock(mutex);
    return outcome;
  }
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

Result<std::unique_ptr<Network>> Network::open(const Environment& environment, const Log& log,
                                               const std::vector<std::vector<int>>& fused) {
  auto settings = read_settings(environment);
  if (!settings) return settings.status();
  std::unique_ptr<Network> network(new Network(std::move(*settings), log));
  const std::vector<std::string>& rails = network->settings_.rails;
  for (std::size_t i = 0; i < network->physical(); ++i) {
    Device& device = network->devices_.emplace_back();
    device.settings = network->settings_;
    device.parts = {static_cast<int>(i)};
    if (!rails.empty()) use(rails[i], device);
  }
  for (const std::vector<int>& parts : fused) {
    const bool there =
        std::ranges::all_of(parts, [&](int part) { return static_cast<std::size_t>(part) < rails.size(); });
    if (there) network->add_fused(parts);
  }
  network->kept_ = network->devices_.size() > network->physical();
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
  if (std::exchange(kept_, false))
    while (devices_.size() > physical()) devices_.pop_back();
  return static_cast<int>(devices_.size());
}

std::vector<std::vector<int>> Network::fused() {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<int>> all;
  for (std::size_t i = physical(); i < devices_.size(); ++i) all.push_back(devices_[i].parts);
  return all;
}

Result<const Device*> Network::device(int number) {
  const std::lock_guard lock(mutex_);
  if (number < 0 || static_cast<std::size_t>(number) >= devices_.size())
    return Status(ErrorCode::out_of_range, "there is no device " + std::to_string(number));
  Device& device = devices_[static_cast<std::size_t>(number)];
  if (static_cast<std::size_t>(number) >= physical()) kept_ = false;
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
  for (int i = 0; i < count; ++i)
    if (parts[i] < 0 || static_cast<std::size_t>(parts[i]) >= settings_.rails.size())
      return Status(ErrorCode::invalid_argument,
                    "device " + std::to_string(parts[i]) + " is no rail: only devices of FAIRWAY_RAILS can be fused");
  if (count < 1) return Status(ErrorCode::invalid_argument, "a virtual device has at least one part");
  kept_ = false;
  return add_fused({parts, parts + count});
}

int Network::add_fused(std::vector<int> parts) {
  Device& fused = devices_.emplace_back();
  fused.settings = settings_;
  for (const int part : parts) use(settings_.rails[static_cast<std::size_t>(part)], fused);
  fused.parts = std::move(parts);
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
  std::shared_ptr<Dial> dial;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = attempts_.find(handle.ticket); handle.ticket != 0 && found != attempts_.end())
      dial = found->second;
  }
  if (dial == nullptr) {
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
    dial = this->dial(std::move(*endpoint), handle.address);
    const std::lock_guard lock(mutex_);
    handle.ticket = next_ticket_++;
    attempts_[handle.ticket] = dial;
    if (attempts_.size() > kMostAttempts) attempts_.erase(attempts_.begin());  // given up, or it dials again
  }
  dial->endpoint->pump();
  const auto outcome = dial->result();
  if (!outcome) return std::shared_ptr<Sender>();
  {
    const std::lock_guard lock(mutex_);
    attempts_.erase(handle.ticket);
    handle.ticket = 0;
    const auto newest = dials_.find({dial->endpoint.get(), dial->address});
    if (newest != dials_.end() && newest->second == dial) dials_.erase(newest);
  }
  if (outcome->status().code() == ErrorCode::authentication_failed)
    return Status(outcome->status())
        .with_context(
            "the ranks have different job keys: run `fairway nccl env` once, where the launcher hands the environment "
            "on, or give all hosts one file by --key-file");
  if (!*outcome) return outcome->status();
  auto sender = std::make_shared<Sender>(dial->endpoint, **outcome, PortId{});
  dial->endpoint->add(sender);
  Message hello;
  hello.kind = Message::Kind::hello;
  hello.from = sender->id();
  dial->endpoint->post_until_accepted(**outcome, handle.listener, hello);
  return sender;
}

// The one that is under way there, or a new one.
std::shared_ptr<Network::Dial> Network::dial(std::shared_ptr<Endpoint> endpoint, const std::string& address) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Dial>& newest = dials_[{endpoint.get(), address}];
  if (newest != nullptr && !newest->result()) return newest;
  newest = std::make_shared<Dial>();
  newest->endpoint = std::move(endpoint);
  newest->address = address;
  const BackgroundTasks::Key key = std::hash<std::string>()(address) ^ std::hash<const void*>()(newest->endpoint.get());
  background_.add(key, [dial = newest] {
    Endpoint& from = *dial->endpoint;
    auto peer = from.engine().connect(dial->address, from.connect_timeout());
    const std::lock_guard guard(dial->mutex);
    dial->outcome = std::move(peer);
  });
  return newest;
}

}  // namespace fairway::nccl

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>

#include "conformance/far_side.h"
#include "conformance/own_side.h"
#include "conformance/shared_room.h"
#include "conformance/world.h"
#include "sim/host.h"
#include "sim/simulation.h"
#include "sys/system_runtime.h"
#include "transport/tcp/tcp.h"

// Lanes over real sockets of this host, and over the simulated network. A lane is cut by what stands between the
// transport and its sockets: it learns from the hello which lane a connection is.
namespace fairway::conformance {
namespace {

class CuttableChannel final : public Channel {
 public:
  explicit CuttableChannel(std::unique_ptr<Channel> below) : below_(std::move(below)) {}
  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    if (cut_->load()) return broken();
    auto sent = below_->send(bytes);
    if (sent && seen_ < 12) {
      for (std::size_t i = 0; i < *sent && seen_ < 12; ++i, ++seen_) hello_[seen_] = bytes[i];
      if (seen_ == 12) name_->store(name());
    }
    return sent;
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    return cut_->load() ? broken() : below_->receive(into);
  }
  std::string peer_address() const override { return below_->peer_address(); }

  std::shared_ptr<std::atomic<bool>> cut_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<std::uint64_t>> name_ = std::make_shared<std::atomic<std::uint64_t>>(~std::uint64_t{0});

 private:
  static Result<std::size_t> broken() { return Status(ErrorCode::link_failed, "cut by the test"); }
  std::uint64_t name() const {  // version, lane and attempt follow the magic
    const auto at = [this](std::size_t i) { return std::to_integer<std::uint64_t>(hello_[i]); };
    const std::uint64_t lane = at(6) | at(7) << 8;
    const std::uint64_t attempt = at(8) | at(9) << 8 | at(10) << 16 | at(11) << 24;
    return attempt << 16 | lane;
  }
  std::unique_ptr<Channel> below_;
  std::array<std::byte, 12> hello_{};
  std::size_t seen_ = 0;
};

class CuttableNetwork final : public Network {
 public:
  explicit CuttableNetwork(Network& below) : below_(below) {}
  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override {
    auto channel = below_.dial(address, wakes);
    if (!channel) return channel;
    auto wrapped = std::make_unique<CuttableChannel>(std::move(*channel));
    const std::lock_guard lock(mutex_);
    dialed_.push_back({wrapped->cut_, wrapped->name_, &wakes});
    return std::unique_ptr<Channel>(std::move(wrapped));
  }
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override {
    return below_.listen(address, wakes);
  }
  Result<bool> is_loopback(const std::string& address) override { return below_.is_loopback(address); }
  Result<std::vector<InterfaceAddress>> addresses() override { return below_.addresses(); }

  bool cut(std::uint64_t name) {
    const std::lock_guard lock(mutex_);
    for (auto& each : dialed_) {
      if (each.name->load() != name) continue;
      each.cut->store(true);
      each.task->wake();
      return true;
    }
    return false;
  }

 private:
  struct Dialed {
    std::shared_ptr<std::atomic<bool>> cut;
    std::shared_ptr<std::atomic<std::uint64_t>> name;
    Task* task;
  };
  Network& below_;
  std::mutex mutex_;  // guards dialed_
  std::vector<Dialed> dialed_;
};

Side::Make maker(std::uint16_t lanes, std::string host) {
  return [lanes, host](transport::RegionTable& regions, Runtime& runtime) {
    transport::TcpOptions options;
    options.lanes = lanes;
    options.listen_host = host;
    return transport::open_tcp_transport(regions, runtime, options);
  };
}

class TcpWorld : public World {
 public:
  std::size_t links() const override { return lanes_; }
  bool break_link(std::uint64_t name) override { return network_->cut(name); }

 protected:
  TcpWorld(std::uint16_t lanes) : lanes_(lanes) {}
  void start(Runtime a, Runtime b, const std::string& host_a, const std::string& host_b) {
    network_ = std::make_unique<CuttableNetwork>(a.network);
    runtime_a_ = std::make_unique<Runtime>(Runtime{a.clock, a.rng, a.executor, *network_});
    runtime_b_ = std::make_unique<Runtime>(b);
    a_ = std::make_unique<OwnSide>(*runtime_a_, maker(lanes_, host_a));
    b_ = std::make_unique<OwnSide>(*runtime_b_, maker(lanes_, host_b));
    a_->start();
    b_->start();
  }
  const std::uint16_t lanes_;
  std::unique_ptr<CuttableNetwork> network_;
  std::unique_ptr<Runtime> runtime_a_, runtime_b_;
};

// The second side in a process of its own.
class ProcessesWorld final : public TcpWorld {
 public:
  ProcessesWorld(std::uint16_t lanes, const std::string& name) : TcpWorld(lanes), room_(false) {
    Runtime below = system_.runtime();
    network_ = std::make_unique<CuttableNetwork>(below.network);
    runtime_a_ = std::make_unique<Runtime>(Runtime{below.clock, below.rng, below.executor, *network_});
    runtime_b_ = std::make_unique<Runtime>(below);
    b_ = std::make_unique<FarSide>(*runtime_b_, name);  // first: it may fork
    a_ = std::make_unique<OwnSide>(*runtime_a_, maker(lanes, "127.0.0.1"));
    a_->start();
    b_->start();
  }
  ~ProcessesWorld() override {
    b_->carry_no_more();
    a_.reset();
    b_.reset();
  }
  bool overlapping_memory() const override { return false; }

 private:
  SharedRoom room_;
  sys::SystemRuntime system_;
};

class SocketWorld final : public TcpWorld {
 public:
  explicit SocketWorld(std::uint16_t lanes) : TcpWorld(lanes) {
    start(system_.runtime(), system_.runtime(), "127.0.0.1", "127.0.0.1");
  }
  ~SocketWorld() override {
    a_.reset();
    b_.reset();
  }

 private:
  sys::SystemRuntime system_;
};

class SimulatedTcpWorld final : public TcpWorld {
 public:
  explicit SimulatedTcpWorld(std::uint64_t seed) : TcpWorld(2), simulation_(options(seed)) {
    sim::Host& host_a = simulation_.add_host();
    sim::Host& host_b = simulation_.add_host();
    start(host_a.runtime(), host_b.runtime(), host_a.address(), host_b.address());
  }
  ~SimulatedTcpWorld() override {
    a_.reset();
    b_.reset();
  }

 private:
  static sim::SimulationOptions options(std::uint64_t seed) {
    sim::SimulationOptions options;
    options.seed = seed;
    options.stuck = [](const std::string& why) { ADD_FAILURE() << why; };
    options.hopeless = [](const std::string& why) { throw std::runtime_error(why); };
    return options;
  }
  sim::Simulation simulation_;
};

}  // namespace

std::vector<Kind> tcp_kinds() {
  std::vector<Kind> kinds;
  kinds.push_back({"tcp", 1, [](std::uint64_t) { return std::make_unique<SocketWorld>(1); }});
  kinds.push_back({"tcp_two_lanes", 1, [](std::uint64_t) { return std::make_unique<SocketWorld>(2); }});
  kinds.push_back({"tcp_simulated", 10, [](std::uint64_t seed) { return std::make_unique<SimulatedTcpWorld>(seed); }});
  const std::string apart = "tcp_processes";
  FarSide::offer(apart, maker(2, "127.0.0.1"));
  kinds.push_back({apart, 1, [apart](std::uint64_t) { return std::make_unique<ProcessesWorld>(2, apart); }});
  return kinds;
}

}  // namespace fairway::conformance

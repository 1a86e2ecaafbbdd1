#include "conformance/own_side.h"
#include "conformance/world.h"
#include "sim/fabric.h"
#include "sys/system_runtime.h"
#include "transport/loopback/direct_wire.h"
#include "transport/loopback/loopback.h"

// Loopback between two threads, and on the simulated fabric with NICs of many natures. Both sides share one process by
// definition, so there is no row for another one.
namespace fairway::conformance {

namespace {

Side::Make loopback_maker(std::shared_ptr<Loopback> loopback) {
  return [loopback](transport::RegionTable& regions, Runtime& runtime) {
    return transport::open_loopback_transport(loopback, regions, runtime);
  };
}

class DirectWorld final : public World {
 public:
  explicit DirectWorld(std::size_t links) : links_(links) {
    std::vector<transport::Device> devices(links, transport::loopback::DirectWire::default_device());
    auto wire = std::make_unique<transport::loopback::DirectWire>(std::move(devices));
    wire_ = wire.get();
    loopback_ = std::make_shared<Loopback>(std::move(wire));
    a_ = std::make_unique<OwnSide>(runtime_, loopback_maker(loopback_));
    b_ = std::make_unique<OwnSide>(runtime_, loopback_maker(loopback_));
    a_->start();
    b_->start();
  }
  ~DirectWorld() override {
    a_.reset();
    b_.reset();
  }
  std::size_t links() const override { return links_; }
  bool break_link(std::uint64_t name) override { return wire_->cut(name); }

 private:
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::size_t links_;
  std::shared_ptr<Loopback> loopback_;
  transport::loopback::DirectWire* wire_;
};

sim::NicDevice nic(std::size_t index, sim::NicBehavior nature) {
  sim::NicDevice made;
  made.device = transport::loopback::DirectWire::default_device();
  made.device.name = "sim" + std::to_string(index);
  made.device.bytes_per_second = 10'000'000'000;
  made.device.capabilities.max_slice_bytes = 2 << 20;
  made.nature = nature;
  return made;
}

class SimulatedWorld final : public World {
 public:
  SimulatedWorld(std::uint64_t seed, const std::vector<sim::NicDevice>& devices)
      : simulation_(options(seed)), fabric_(simulation_), links_(devices.size()) {
    sim::Host& host_a = simulation_.add_host();
    sim::Host& host_b = simulation_.add_host();
    a_ = std::make_unique<OwnSide>(host_a.runtime(), loopback_maker(fabric_.plug_in(host_a, devices)));
    b_ = std::make_unique<OwnSide>(host_b.runtime(), loopback_maker(fabric_.plug_in(host_b, devices)));
    a_->start();
    b_->start();
  }
  ~SimulatedWorld() override {
    a_.reset();
    b_.reset();
    EXPECT_EQ(fabric_.open_ends(), 0u);
  }
  std::size_t links() const override { return links_; }
  bool break_link(std::uint64_t name) override {
    fabric_.break_link(name);
    return true;
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
  sim::Fabric fabric_;
  std::size_t links_;
};

Kind simulated(const std::string& name, unsigned runs, std::vector<sim::NicDevice> devices) {
  return {"simulated_" + name, runs, [devices](std::uint64_t seed) -> std::unique_ptr<World> {
            return std::make_unique<SimulatedWorld>(seed, devices);
          }};
}

}  // namespace

std::vector<Kind> loopback_kinds() {
  std::vector<Kind> kinds;
  kinds.push_back({"loopback", 1, [](std::uint64_t) { return std::make_unique<DirectWorld>(1); }});
  kinds.push_back({"loopback_two_links", 1, [](std::uint64_t) { return std::make_unique<DirectWorld>(2); }});

  sim::NicBehavior wild;
  wild.latency_max = 200 * kMicrosecond;
  wild.lose_per_mille = 100;
  wild.partial_post_per_mille = 300;
  kinds.push_back(simulated("calm", 10, {nic(0, {})}));
  kinds.push_back(simulated("wild", 30, {nic(0, wild), nic(1, wild)}));

  sim::NicDevice unordered = nic(0, wild);  // as EFA: no order, no atomics, no shapes, no immediates with data
  unordered.device.capabilities.ordered = false;
  unordered.device.capabilities.shapes = static_cast<std::uint8_t>(Shape::contiguous);
  unordered.device.capabilities.operations = static_cast<std::uint8_t>(Op::write) |
                                             static_cast<std::uint8_t>(Op::read) |
                                             static_cast<std::uint8_t>(Op::message);
  kinds.push_back(simulated("unordered", 20, std::vector(4, unordered)));

  sim::NicDevice messages = nic(0, wild);  // as a plain datagram NIC: messages alone
  messages.device.capabilities.operations = static_cast<std::uint8_t>(Op::message);
  messages.device.capabilities.max_message_bytes = 256;
  messages.device.capabilities.queue_depth = 3;
  kinds.push_back(simulated("messages_only", 20, {messages}));

  sim::NicDevice tiny = nic(0, wild);
  tiny.device.capabilities.max_slice_bytes = 4096;
  tiny.device.capabilities.queue_depth = 2;
  kinds.push_back(simulated("tiny", 20, std::vector(32, tiny)));
  return kinds;
}

}  // namespace fairway::conformance

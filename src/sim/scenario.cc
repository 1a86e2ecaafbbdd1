#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "sim/campaign.h"
#include "sim/simulate.h"
#include "transport/loopback/direct_wire.h"

namespace fairway::sim {

using transport::Capabilities;
using transport::Op;
using transport::Shape;

namespace {

template <class... Bits>
std::uint8_t mask(Bits... bits) {
  return static_cast<std::uint8_t>((0u | ... | static_cast<unsigned>(bits)));
}

// From full hardware support down to datagrams alone.
Capabilities some_capabilities(Random& random, std::uint32_t largest) {
  Capabilities can = transport::loopback::DirectWire::default_device().capabilities;
  can.max_slice_bytes = largest;
  can.queue_depth = 64;
  switch (random.below(8)) {
    case 0: can.operations = mask(Op::message); break;
    case 1: can.operations = mask(Op::write, Op::message); break;
    case 2: can.operations = mask(Op::write, Op::read, Op::message); break;
    case 3: can.operations = mask(Op::write, Op::read, Op::message, Op::write_immediate); break;
    default: break;
  }
  if (random.chance(400)) can.shapes = mask(Shape::contiguous);
  if (random.chance(150)) can.shapes = mask(Shape::contiguous, Shape::strided);
  can.ordered = random.chance(600);
  can.visible_when_done = !random.chance(300);
  if (random.chance(300)) can.max_slice_bytes = random.between(64, 1024);
  if (random.chance(300)) can.queue_depth = static_cast<std::uint32_t>(random.between(1, 8));
  can.max_message_bytes = static_cast<std::uint32_t>(random.chance(300)   ? 512
                                                     : random.chance(500) ? 1024
                                                                          : transport::kMessageBytes);
  return can;
}

NicBehavior some_nature(Random& random) {
  NicBehavior nature;
  if (random.chance(300)) nature.latency_max = random.between(20, 500) * kMicrosecond;
  if (random.chance(300)) nature.lose_per_mille = static_cast<std::uint32_t>(random.between(1, 100));
  if (random.chance(300)) nature.give_up_per_mille = static_cast<std::uint32_t>(random.between(1, 100));
  if (random.chance(200)) nature.partial_post_per_mille = static_cast<std::uint32_t>(random.between(50, 700));
  nature.error_breaks_link = random.chance(200);
  nature.late = random.between(1, 50) * kMillisecond;
  return nature;
}

constexpr std::pair<std::string_view, Scenario::Fault> kNames[] = {
    {"break_link", Scenario::Fault::break_link},   {"device_down", Scenario::Fault::device_down},
    {"partition", Scenario::Fault::partition},     {"one_way", Scenario::Fault::one_way},
    {"slow_path", Scenario::Fault::slow_path},     {"mtu_hole", Scenario::Fault::mtu_hole},
    {"freeze", Scenario::Fault::freeze},           {"kill", Scenario::Fault::kill},
    {"cut_control", Scenario::Fault::cut_control}, {"hold", Scenario::Fault::hold}};

void plan_faults(Scenario& scenario, Random& random, const std::vector<std::string>& only) {
  if (only.empty() && random.chance(200)) return;
  const Time span = scenario.operations * scenario.pace;
  for (std::uint64_t left = random.between(1, 6); left > 0; --left) {
    Scenario::Planned planned;
    planned.at = 2 * kMillisecond + random.below(span);
    const std::uint64_t kind = random.below(100);
    planned.fault = kind < 45   ? Scenario::Fault::break_link
                    : kind < 65 ? Scenario::Fault::device_down
                    : kind < 71 ? Scenario::Fault::partition
                    : kind < 73 ? Scenario::Fault::one_way
                    : kind < 75 ? Scenario::Fault::slow_path
                    : kind < 77 ? Scenario::Fault::mtu_hole
                    : kind < 85 ? Scenario::Fault::freeze
                    : kind < 91 ? Scenario::Fault::kill
                    : kind < 97 ? Scenario::Fault::hold
                                : Scenario::Fault::cut_control;
    if (!only.empty()) planned.fault = fault_named(only[kind % only.size()]).value_or(planned.fault);
    planned.a = static_cast<std::uint32_t>(random.below(scenario.engines));
    planned.b = static_cast<std::uint32_t>((planned.a + 1 + random.below(scenario.engines - 1)) % scenario.engines);
    planned.lasts = random.chance(150) ? random.between(1, 5) * kSecond : random.between(100, 20'000) * kMicrosecond;
    // The loopback transport busy-polls while a region's end waits for a NIC; keep this short.
    if (planned.fault == Scenario::Fault::hold) planned.lasts = std::min(planned.lasts, 40 * kMillisecond);
    scenario.faults.push_back(planned);
  }
}

}  // namespace

std::optional<Scenario::Fault> fault_named(std::string_view name) {
  for (const auto& [each, fault] : kNames)
    if (each == name) return fault;
  return {};
}

Scenario make_scenario(Random& random, const std::vector<std::string>& only) {
  Scenario scenario;
  scenario.engines = static_cast<std::uint32_t>(random.chance(600) ? 2 : random.between(3, 4));
  scenario.operations = static_cast<std::uint32_t>(random.between(10, 40));
  scenario.pace = random.chance(300) ? random.between(100, 1000) * kMicrosecond : random.between(1, 100) * kMicrosecond;
  scenario.largest = random.chance(200) ? 256 : 4096;
  const bool alike = random.chance(700);
  for (std::uint32_t place = 0; place < scenario.engines; ++place) {
    std::vector<NicDevice> nics;
    const std::uint64_t count = random.chance(30) ? 32 : random.chance(500) ? 1 : random.between(2, 4);
    const bool one_kind = random.chance(500);
    for (std::uint64_t i = 0; i < count; ++i) {
      NicDevice nic;
      if (i > 0 && one_kind)
        nic = nics.front();
      else
        nic = {{"", random.between(100'000'000, 50'000'000'000), some_capabilities(random, scenario.largest)},
               some_nature(random)};
      nic.device.name = "sim" + std::to_string(i);
      nics.push_back(nic);
    }
    scenario.devices.push_back(alike && place > 0 ? scenario.devices.front() : nics);
    EngineOptions options;
    options.name = "e" + std::to_string(place);
    options.job_key = "a key for all";
    options.workers = random.chance(200) ? 2 : 1;
    options.max_transfers = random.chance(200) ? 4 : 64;
    options.max_regions = 16;
    options.max_remote_regions = 64;
    options.max_peers = 16;
    options.max_counters = 16;
    options.notifications_per_peer = static_cast<std::uint32_t>(random.chance(300) ? 1 : 16);
    options.unexpected_bytes_per_peer = random.chance(300) ? 2048 : 8192;
    options.peer_timeout = std::chrono::milliseconds(random.chance(500) ? 2000 : 200);
    options.prove_paths = random.chance(500);
    if (random.chance(30)) options.progress = Progress::caller;
    scenario.options.push_back(options);
  }
  // Values in which bits that engines use themselves are set.
  constexpr std::uint32_t kBits[] = {0, 0, 1u << 30, 1u << 31, 3u << 30, ~0u, 1u << 29};
  scenario.immediate_bits = kBits[random.below(std::size(kBits))];
  scenario.garbles = random.chance(300);
  scenario.unreceived_sends = random.chance(100);
  plan_faults(scenario, random, only);
  // One of several NICs corrupts data without reporting it. Every engine proves a path before it trusts it.
  scenario.faulty = scenario.devices.front().size() > 1 && random.chance(60);
  if (scenario.faulty) {
    auto& nics = scenario.devices.front();
    nics[random.below(nics.size())].nature.faulty = true;
    for (EngineOptions& options : scenario.options) options.prove_paths = true;
  }
  // As between processes that share memory: one link, over which a slice that is done is visible.
  scenario.at_once = !scenario.faulty && random.chance(500);
  if (scenario.at_once)
    for (auto& nics : scenario.devices) {
      nics.resize(1);
      nics.front().nature.at_once_per_mille =
          static_cast<std::uint32_t>(random.chance(500) ? 1000 : random.between(1, 999));
      transport::Capabilities& can = nics.front().device.capabilities;
      can.operations |= static_cast<transport::Bits>(transport::Op::write) |
                        static_cast<transport::Bits>(transport::Op::read) |
                        static_cast<transport::Bits>(transport::Op::write_immediate);
      can.visible_when_done = true;
      can.ordered = true;
    }
  return scenario;
}

}  // namespace fairway::sim

namespace fairway {

std::vector<std::string> simulated_faults() {
  std::vector<std::string> names;
  for (const auto& [name, fault] : sim::kNames) names.emplace_back(name);
  return names;
}

}  // namespace fairway

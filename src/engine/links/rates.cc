#include "engine/links/rates.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "engine/tables/route.h"

namespace fairway::engine {

using transport::MovedBy;

namespace {

constexpr const char* kOwnInterface = "lo";  // sockets within this host

std::uint64_t bytes_per_second(double gbs) {
  return static_cast<std::uint64_t>(gbs * 1e9);
}

}  // namespace

double GpuRates::least_between(Place from, Place to) {
  const std::pair pair(from, to);
  for (const auto& [known, least] : known_)
    if (known == pair) return least;
  const Expectation* machine = machine_.found();
  const auto prediction =
      machine == nullptr ? std::nullopt : machine->between(from, to, true);  // the slower of the two
  return known_.emplace_back(pair, prediction ? prediction->gbs.low * 1e9 : 0).second;
}

// For sockets the model covers only copies within this host.
bool LinkRates::asks_for_the_machine() const {
  return std::any_of(links_.begin(), links_.end(), [this](const Link& link) {
    const transport::Device& device = device_of(link);
    return device.moved_by != MovedBy::sockets || device.name == kOwnInterface;
  });
}

void LinkRates::learn() {
  for (Link& link : links_) learn(link);
}

// Rates of a NIC's links, by which they are ranked. A GPU's links have a rate for each pair of memories:
// GpuRates::least_between().
void LinkRates::learn(Link& link) {
  link.rates.clear();
  const transport::Device& device = device_of(link);
  if (device.moved_by != MovedBy::nic && device.moved_by != MovedBy::gpu) return;
  machine_.want();
  const Expectation* machine = machine_.found();
  if (machine == nullptr || device.moved_by == MovedBy::gpu) return;
  for (std::size_t i = 0; i < machine->places(); ++i) {
    const auto out = machine->through(device.name, static_cast<Place>(i), true);
    const auto in = machine->through(device.name, static_cast<Place>(i), false);
    link.rates.emplace_back();
    if (!out || !in) continue;
    link.rates.back() = {bytes_per_second(std::min(out->gbs.expected, in->gbs.expected)),
                         bytes_per_second(std::min(out->gbs.low, in->gbs.low))};
  }
}

TransferEnds LinkRates::ends_of(const Request& request) const {
  TransferEnds ends;
  ends.outwards = request.operation != Operation::read && request.operation != Operation::receive;
  if (is_atomic(request.operation) || block_count(request.layout) == 0) return ends;
  const Block first = block_at(request.layout, 0);
  ends.here = place_of(first.local);
  if (request.operation == Operation::write || request.operation == Operation::read)
    ends.there = place_of(first.remote);
  ends.pieces = block_count(request.layout) > 1;
  return ends;
}

void LinkRates::find_places(Transfer& t) const {
  const TransferEnds ends = ends_of(t.request);
  t.place = ends.here;
  t.far_place = ends.there;
  t.paced = false;
  if (t.request.options.start_after != nullptr || t.total < kStripeMinimum) return;
  double most = 0;
  for (const Link& link : links_) most = std::max(most, least_of(link, t));
  t.paced = Pace::for_transfer(most, t.total) > 0;
}

double LinkRates::least_of(const Link& link, const Transfer& t) const {
  if (t.place < link.rates.size()) return static_cast<double>(link.rates[t.place].least);
  if (t.far_place == kNoPlace || device_of(link).moved_by != MovedBy::gpu) return 0;
  return gpus_.least_between(t.place, t.far_place);
}

void LinkRates::keep_pace(Link& link, std::uint64_t bytes) {
  const auto slow = link.pace.ended(bytes, peer_.now());
  if (!slow) return;
  owner_.link_slow(
      link, fmt::format("{:.2f} GB/s for the last {} ms, where at least {:.2f} GB/s are expected", slow->reached / 1e9,
                        Pace::kWindow * Pace::kWindows / kMillisecond, slow->least / 1e9));
}

void LinkRates::expect(const Link& link, const TransferEnds& ends, ExplainedLink& out) const {
  const transport::Device& device = device_of(link);
  const Expectation* machine = machine_.found();
  std::optional<predict::Prediction> prediction;
  // The NUMA node of host memory is not always known.
  const Place here = ends.here == kNoPlace ? kAnyNode : ends.here,
              there = ends.there == kNoPlace ? kAnyNode : ends.there;
  switch (device.moved_by) {
    case MovedBy::cpu:
      if (machine != nullptr) prediction = machine->copied(here, there, predict::Mover::cpu);
      break;
    case MovedBy::sockets:
      if (machine != nullptr && device.name == kOwnInterface)
        prediction = machine->copied(here, there, predict::Mover::sockets);
      break;
    case MovedBy::nic:
      if (machine != nullptr) prediction = machine->through(device.name, ends.here, ends.outwards);
      break;
    case MovedBy::gpu:
      if (machine != nullptr)
        prediction = ends.outwards ? machine->between(ends.here, ends.there, ends.pieces)
                                   : machine->between(ends.there, ends.here, ends.pieces);
      break;
  }
  if (prediction) {
    out.expected_low = prediction->gbs.low * 1e9;
    out.expected_high = prediction->gbs.high * 1e9;
    out.bound = prediction->bottleneck;
  } else if (device.bytes_per_second > 0) {
    out.expected_high = static_cast<double>(device.bytes_per_second);
    out.bound = "the port's rate; no model for the path to it";
  } else {
    out.bound = "no model for these two memories";
  }
}

}  // namespace fairway::engine

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// What links should reach by the machine's model, whether they do, and what explain() says of them.
namespace fairway::engine {

using transport::MovedBy;

namespace {

constexpr const char* kOwnInterface = "lo";  // sockets within this host

std::uint64_t bytes_per_second(double gbs) {
  return static_cast<std::uint64_t>(gbs * 1e9);
}

}  // namespace

// Of sockets the model knows copies within this host alone.
bool Peer::asks_for_the_machine() const {
  return std::any_of(links_.begin(), links_.end(), [this](const Link& link) {
    const transport::Device& device = worker_.device_of(link);
    return device.moved_by != MovedBy::sockets || device.name == kOwnInterface;
  });
}

void Peer::learn_rates() {
  for (Link& link : links_) learn_rates(link);
  ++route_version_;
}

// Of a NIC's links, which are ranked by them; a GPU's have one for each pair of memories: Worker::least_between().
void Peer::learn_rates(Link& link) {
  link.rates.clear();
  const transport::Device& device = worker_.device_of(link);
  if (device.moved_by != MovedBy::nic && device.moved_by != MovedBy::gpu) return;
  worker_.services().machine.want();
  const Expectation* machine = worker_.services().machine.found();
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

Peer::Ends Peer::ends_of(const Request& request) {
  Ends ends;
  ends.outwards = request.operation != Operation::read && request.operation != Operation::receive;
  if (is_atomic(request.operation) || block_count(request.layout) == 0) return ends;
  const Block first = block_at(request.layout, 0);
  ends.here = worker_.place_of(first.local);
  if (request.operation == Operation::write || request.operation == Operation::read)
    ends.there = worker_.place_of(first.remote);
  ends.pieces = block_count(request.layout) > 1;
  return ends;
}

void Peer::find_places(Transfer& t) {
  const Ends ends = ends_of(t.request);
  t.place = ends.here;
  t.far_place = ends.there;
  t.paced = false;
  if (t.request.options.start_after != nullptr || t.total < kStripeMinimum) return;
  double most = 0;
  for (const Link& link : links_) most = std::max(most, least_of(link, t));
  t.paced = Pace::for_transfer(most, t.total) > 0;
}

std::span<LinkView> Peer::views_for(const Transfer& t) {
  for (std::size_t i = 0; i < links_.size(); ++i) views_[i].bytes_per_second = links_[i].rate(t.place);
  return {views_.data(), links_.size()};
}

double Peer::least_of(const Link& link, const Transfer& t) {
  if (t.place < link.rates.size()) return static_cast<double>(link.rates[t.place].least);
  if (t.far_place == kNoPlace || worker_.device_of(link).moved_by != MovedBy::gpu) return 0;
  return worker_.least_between(t.place, t.far_place);
}

void Peer::keep_pace(Link& link, std::uint64_t bytes) {
  const auto slow = link.pace.ended(bytes, worker_.now());
  if (!slow) return;
  PeerEvent event{PeerEvent::Kind::link_slow, id(), text(), link.text, info_.incarnation, {}, {}};
  event.detail = fmt::format("{:.2f} GB/s for the last {} ms, where at least {:.2f} GB/s are expected",
                             slow->reached / 1e9, Pace::kWindow * Pace::kWindows / kMillisecond, slow->least / 1e9);
  worker_.services().peer_events.push(std::move(event));
  worker_.services().notice();
}

void Peer::expect(const Link& link, const Ends& ends, ExplainedLink& out) const {
  const transport::Device& device = worker_.device_of(link);
  const Expectation* machine = worker_.services().machine.found();
  std::optional<predict::Prediction> prediction;
  // Of host memory in this host: on which node is not always known.
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

// Empty: nothing is missing there.
std::string Peer::why_without(const Request& request, std::size_t link) {
  const std::uint16_t transport = links_[link].transport;
  if ((memories(request).without >> transport & 1) == 0) {
    if (std::string why = why_link_without(request, link); !why.empty()) return why;
    if (is_atomic(request.operation)) return {};
    const Unreached far = unreached(request);
    return (far.without >> transport & 1) == 0 ? std::string() : "it does not reach both memories: " + far.why;
  }
  const std::uint64_t blocks = is_atomic(request.operation) ? 0 : block_count(request.layout);
  for (std::uint64_t i = 0; i < blocks; ++i)
    if (const Status why = worker_.locals().why_without(block_at(request.layout, i).local, transport); !why)
      return "it refused this memory: " + why.message();
  return "the peer's memory is not registered with it: its device there refused it";
}

// Other devices of its transport have it.
std::string Peer::why_link_without(const Request& request, std::size_t link) {
  const std::uint64_t partly = memories(request).partly;
  if (partly == 0 || (links_without(request, partly) >> link & 1) == 0) return {};
  const std::uint64_t blocks = is_atomic(request.operation) ? 0 : block_count(request.layout);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const RegionId local = block_at(request.layout, i).local;
    if (const Status why = worker_.locals().why_partly(local, links_[link].transport, links_[link].device); !why)
      return "its device refused this memory: " + why.message();
  }
  return "the peer's device at its other end refused the peer's memory";
}

void Peer::explain_links(Explanation& out, const Route* chosen, std::uint64_t used, const Ends& ends,
                         const Request* request) {
  const auto rate = [&](std::uint8_t i) {
    const std::uint64_t known = links_[i].rate(ends.here);
    return static_cast<double>(known > 0 ? known : kUnknownRate);
  };
  double total = 0;
  if (chosen != nullptr)
    for (const std::uint8_t i : chosen->chosen()) total += rate(i);
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    ExplainedLink line;
    line.name = link.text;
    expect(link, ends, line);
    const bool planned =
        chosen != nullptr && std::find(chosen->chosen().begin(), chosen->chosen().end(), i) != chosen->chosen().end();
    line.taken = planned || (used >> i & 1);
    if (planned && total > 0) line.share = rate(static_cast<std::uint8_t>(i)) / total;
    if (planned && chosen->method == Method::by_messages)
      line.reason = "emulated by messages, with one copy on each side";
    if (planned && chosen->method == Method::staged)
      line.reason =
          (link.capabilities->memory_kinds & kDeviceBit) == 0
              ? "does not take a device's memory: staged, its bytes are copied through host memory"
              : why_without(*request, i) + "; staged, it moves between this side's memory and the peer's host memory";
    if (!line.taken) {
      switch (link.state) {
        case LinkState::proving: line.reason = "not verified yet"; break;
        case LinkState::ready:
          if (request != nullptr) line.reason = why_without(*request, i);
          if (chosen != nullptr && line.reason.empty()) line.reason = "slower";
          break;
        case LinkState::closing: line.reason = "down, being closed: " + link.down_reason.message(); break;
        case LinkState::closed: line.reason = "down: " + link.why_down(); break;
      }
    }
    out.links.push_back(std::move(line));
  }
  for (const std::uint16_t transport : links_.connecting())
    out.links.push_back({std::string(worker_.transport_at(transport).name()), false, "not connected yet", 0, 0, 0, {}});
  for (const std::string& refusal : links_.refusals())
    out.links.push_back({refusal.substr(0, refusal.find(':')),
                         false,
                         refusal.substr(std::min(refusal.size(), refusal.find(':') + 2)),
                         0,
                         0,
                         0,
                         {}});
}

// Of what is staged: the links by which its bytes come to the peer's host memory, straight from a device's here if so.
Route Peer::as_staged(const Request& request, const Route& route, Ends& ends) {
  if (route.method != Method::staged) return route;
  const RegionId local = block_at(request.layout, 0).local;
  const auto leased = staging_client_.reached_from(local);
  if (!leased) return route;
  Request inner;
  inner.operation = op_of(request.operation) == transport::Op::write ? Operation::write : Operation::read;
  inner.peer = id();
  inner.layout = Extent{{local, 0, 1}, {*leased, 0}};
  Route direct = route_for(inner, worker_.place_of(local));
  if (direct.method != Method::native) return route;
  direct.method = Method::staged;
  ends.there = worker_.place_of(*leased);
  return direct;
}

void Peer::explain_way(Explanation& out, const Route& route, const Request& request) {
  if (const std::string why = worker_.staging().pool.why_slow(); route.method == Method::staged && !why.empty())
    out.notes.push_back("the host memory to stage in is not pinned, which is slow: " + why);
  if (route.method != Method::native || request.operation == Operation::send || request.operation == Operation::receive)
    return;
  const RemoteRegionId region =
      is_atomic(request.operation) ? request.target.region : block_at(request.layout, 0).remote;
  std::uint16_t last = Worker::kNoTransport;
  for (const std::uint8_t i : route.chosen()) {
    const std::uint16_t transport = links_[i].transport;
    if (std::exchange(last, transport) == transport) continue;
    const auto handle = worker_.remotes().handle(owner_, region, transport);
    std::string path = handle ? "" : "cannot reach the region: " + handle.status().message();
    const std::uint64_t local = is_atomic(request.operation)
                                    ? kNotRegistered
                                    : worker_.locals().handle(block_at(request.layout, 0).local, transport);
    if (handle) (void)worker_.transport_at(transport).reach(links_[i].id, local, *handle, &path);
    const std::string name(worker_.transport_at(transport).name());
    if (!path.empty()) out.notes.push_back(name + ": " + path);
    if (is_atomic(request.operation)) continue;
    if (const auto how = worker_.locals().how_with(block_at(request.layout, 0).local, transport); !how.empty())
      out.notes.push_back(name + ": this side's memory is registered at " + std::string(how));
  }
}

}  // namespace fairway::engine

#include "sim/fabric.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace fairway::sim {

void PostedWrites::post(const transport::RegionTable& regions, RegionId region, std::uint64_t offset,
                        std::span<const std::byte> bytes) {
  writes_.push_back({&regions, region, offset, {bytes.begin(), bytes.end()}});
}

void PostedWrites::flush() {
  for (const Write& write : writes_) {
    transport::RegionTable::Resolved at;
    if (write.regions->resolve(write.region, write.offset, write.bytes.size(), Access::none, at) == ErrorCode::ok)
      std::memcpy(at.address, write.bytes.data(), write.bytes.size());
  }
  writes_.clear();
}

using transport::EventKind;
using transport::loopback::Port;

Fabric::~Fabric() = default;

void LinkEnd::ring() {
  if (!open) return;
  if (ready != nullptr && !std::exchange(told, true)) ready->push_back(slot);
  if (ready != nullptr) host->signalled();  // a program that polls sees it at once
  doorbell->ring();
}

std::shared_ptr<Loopback> Fabric::plug_in(Host& host, std::vector<NicDevice> devices, std::string name) {
  auto nic = std::make_unique<Nic>();
  nic->host = &host;
  for (NicDevice& device : devices) {
    nic->devices.push_back(std::move(device.device));
    nic->natures.push_back(device.nature);
  }
  nic->down_until.assign(devices.size(), 0);
  nic->busy_until.assign(devices.size(), 0);
  nic->receives_until.assign(devices.size(), 0);
  nics_.push_back(std::move(nic));
  return std::make_shared<Loopback>(std::make_unique<FabricWire>(*this, nics_.size() - 1, std::move(name)));
}

Traffic Fabric::sent_by(const Host& host) const {
  for (const auto& nic : nics_)
    if (nic->host == &host) return nic->sent;
  return {};
}

std::unique_ptr<Port> Fabric::open_end(SimLink& link, unsigned side, Nic& nic, transport::loopback::End end) {
  LinkEnd& at = link.ends[side];
  at.host = nic.host;
  at.device = end.device;
  at.regions = &end.regions;
  at.doorbell = std::move(end.doorbell);
  if (nic.natures[end.device].steady) at.ready = end.ready;
  at.slot = end.slot;
  at.open = true;
  return std::make_unique<FabricPort>(*this, link, side);
}

// Both ends learn of it, each at its own time; an end that is already fencing does not.
void Fabric::break_link(SimLink& link) {
  if (link.broken) return;
  link.broken = true;
  simulation_.note(Simulation::kNoHost, [&] { return "link " + std::to_string(link.name) + " breaks"; });
  for (unsigned side = 0; side < 2; ++side)
    simulation_.in(simulation_.random().between(kMicrosecond, 2 * kMillisecond), &Fabric::tell_down, &link, side);
}

void Fabric::tell_down(void* object, std::uint64_t side, std::uint64_t) {
  SimLink& link = *static_cast<SimLink*>(object);
  LinkEnd& end = link.ends[side];
  if (!end.open || end.fencing || end.fenced) return;
  Outcome outcome;
  outcome.kind = EventKind::link_down;
  end.outcomes.push_back(outcome);
  end.ring();
}

void Fabric::ring(void* object, std::uint64_t side, std::uint64_t) {
  LinkEnd& end = static_cast<SimLink*>(object)->ends[side];
  end.ring();
}

void Fabric::end_flight(Flight& flight, ErrorCode code) {
  if (flight.ended) return;
  LinkEnd& end = flight.link->ends[flight.side];
  flight.ended = true;
  std::erase(end.flights, &flight);
  Outcome outcome;
  outcome.kind = code == ErrorCode::ok ? EventKind::done : EventKind::failed;
  outcome.token = flight.command.slice.token;
  outcome.code = code;
  outcome.value = flight.old_value;
  outcome.local_handle = flight.command.slice.local_handle;
  const bool refused = flight.settled && flight.result == code;  // the target refused it
  if (flight.left)
    outcome.effect = refused ? (flight.landed != 0 ? Effect::partial : Effect::not_applied) : Effect::unknown;
  end.outcomes.push_back(outcome);
  end.ring();
  if (flight.frames == 0 && !flight.waits_turn) free_flights_.push_back(&flight);
}

// From now on no frame of this epoch, in either direction, touches that end's memory.
void Fabric::fence_now(SimLink& link, unsigned side) {
  LinkEnd& end = link.ends[side];
  if (end.fenced) return;
  end.fenced = true;
  nics_[end.nic]->posted.flush();  // nothing of this epoch becomes visible later
  while (!end.flights.empty()) {
    Flight& flight = *end.flights.back();
    end_flight(flight, ErrorCode::link_failed);
  }
  Outcome outcome;
  outcome.kind = EventKind::fenced;
  end.outcomes.push_back(outcome);
  end.ring();
  simulation_.note(end.host->index(), [&] { return "link " + std::to_string(link.name) + " fenced"; });
}

void Fabric::fence_done(void* object, std::uint64_t side, std::uint64_t) {
  SimLink& link = *static_cast<SimLink*>(object);
  if (const Time until = link.fabric->held_until(link, static_cast<unsigned>(side)))
    return link.fabric->simulation_.at(until + kMicrosecond, &Fabric::fence_done, object, side);
  link.fabric->fence_now(link, static_cast<unsigned>(side));
}

// The memory of a flight was deregistered: the NIC stops reading it. Frames that already left go on to the target.
void Fabric::abort_flight(void* object, std::uint64_t, std::uint64_t) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, flight.side, &Fabric::abort_flight, 0, 0)) return;
  if (!flight.ended) fabric.end_flight(flight, ErrorCode::cancelled);
  fabric.drop(flight);
}

void Fabric::break_device(Host& host, std::size_t device, Time down_for) {
  for (std::size_t i = 0; i < nics_.size(); ++i) {
    Nic& nic = *nics_[i];
    if (nic.host != &host || device >= nic.devices.size()) continue;
    nic.down_until[device] = std::max(nic.down_until[device], simulation_.now() + down_for);
    simulation_.note(host.index(), [&] { return "device " + nic.devices[device].name + " is down"; });
    for (const auto& link : links_)
      for (const LinkEnd& end : link->ends)
        if (end.open && end.host == &host && end.device == device) break_link(*link);
  }
}

void Fabric::break_link(std::uint64_t name) {
  for (const auto& link : links_)
    if (link->name == name) break_link(*link);
}

void Fabric::break_between(const Host& a, const Host& b) {
  for (const auto& link : links_)
    if ((link->ends[0].host == &a && link->ends[1].host == &b) ||
        (link->ends[0].host == &b && link->ends[1].host == &a))
      break_link(*link);
}

void Fabric::host_killed(const Host& host) {
  for (const auto& nic : nics_)
    if (nic->host == &host) nic->posted.forget();
  for (const auto& link : links_) {
    if (link->ends[0].host != &host && link->ends[1].host != &host) continue;
    if (simulation_.random().chance(500)) break_link(*link);
  }
}

void Fabric::hold(const Host& host, Time until) {
  simulation_.note(host.index(),
                   [&] { return "its NICs stall until " + std::to_string(until / kMicrosecond) + " us"; });
  for (const auto& nic : nics_)
    if (nic->host == &host) nic->held_until = std::max(nic->held_until, until);
}

Time Fabric::held_until(const SimLink& link, unsigned side) const {
  const LinkEnd& end = link.ends[side];
  if (!end.host || end.host->dead()) return 0;
  const Time until = nics_[end.nic]->held_until;
  return until > simulation_.now() ? until : 0;
}

// Whether the NIC at that side holds back the frame. If so, the frame is scheduled again.
bool Fabric::holds(Flight& flight, unsigned side, Simulation::Handler again, std::uint64_t a, std::uint64_t b) {
  const Time until = held_until(*flight.link, side);
  if (until == 0) return false;
  simulation_.at(until + simulation_.random().below(20 * kMicrosecond), again, &flight, a, b);
  return true;
}

void Fabric::garble(const Flight& flight, const std::byte* place, std::span<std::byte> bytes) {
  if (nature(*flight.link, flight.side).faulty)
    // A corrupted byte must not become right again on the way back.
    bytes.back() = static_cast<std::byte>(std::to_integer<unsigned>(bytes.back()) + 1);
  for (Garbled& one : garbled_) {
    if (one.at < place || one.at >= place + bytes.size()) continue;
    bytes[static_cast<std::size_t>(one.at - place)] ^= std::byte{0x20};
    ++one.times;
  }
}

std::uint32_t Fabric::heal(const std::byte* at) {
  std::uint32_t times = 0;
  std::erase_if(garbled_, [&](const Garbled& one) {
    times += one.at == at ? one.times : 0;
    return one.at == at;
  });
  return times;
}

std::size_t Fabric::open_ends() const {
  std::size_t count = 0;
  for (const auto& link : links_) count += static_cast<std::size_t>(link->ends[0].open) + link->ends[1].open;
  return count;
}

const NicBehavior& Fabric::nature(const SimLink& link, unsigned side) const {
  const LinkEnd& end = link.ends[side];
  return nics_[end.nic]->natures[end.device];
}

std::uint64_t Fabric::rate_of(const LinkEnd& end) const {
  return std::max<std::uint64_t>(nics_[end.nic]->devices[end.device].bytes_per_second, 1'000'000);
}

// When bytes that are read have left the NIC where they lie.
Time Fabric::leaves_target(const Flight& flight, std::uint64_t bytes) {
  const LinkEnd& at = flight.link->ends[1 - flight.side];
  Nic& nic = *nics_[at.nic];
  Time& busy = nic.busy_until[at.device];
  busy = std::max(busy, simulation_.now()) + bytes * kSecond / rate_of(at);
  return busy;
}

// What happens after a slice's last frame: messages and immediates are delivered in order, the initiator gets its
// acknowledgement.

using transport::Op;

namespace {
bool takes_turn(Op op) {
  return op == Op::message || op == Op::write_immediate;
}
}  // namespace

// All bytes have landed. On an ordered device, a message or an immediate waits for those posted before it.
void Fabric::arrived(Flight& flight) {
  flight.settled = true;
  if (!takes_turn(flight.command.slice.op)) return answer(flight);
  flight.waits_turn = true;
  flight.link->ends[flight.side].arrived.push_back(&flight);
  deliver(flight.link, flight.side, 0);
}

// This flight will never arrive, so later ones need not wait for it.
void Fabric::skip_turn(Flight& flight) {
  if (!takes_turn(flight.command.slice.op) || flight.waits_turn) return;
  if (flight.result == ErrorCode::ok) flight.result = ErrorCode::cancelled;
  flight.settled = flight.waits_turn = true;
  flight.link->ends[flight.side].arrived.push_back(&flight);
  simulation_.in(0, &Fabric::deliver, flight.link, flight.side);
}

void Fabric::deliver(void* object, std::uint64_t side, std::uint64_t) {
  SimLink& link = *static_cast<SimLink*>(object);
  Fabric& fabric = *link.fabric;
  LinkEnd& from = link.ends[side];
  LinkEnd& to = link.ends[1 - side];
  if (!to.host) return;
  const auto& can = fabric.nics_[from.nic]->devices[from.device].capabilities;
  const std::size_t room = std::max<std::size_t>(can.queue_depth, 1);
  for (std::size_t i = 0; i < from.arrived.size();) {
    Flight& flight = *from.arrived[i];
    if (can.ordered && flight.turn != from.current_turn) {
      ++i;
      continue;
    }
    const bool heard = flight.result == ErrorCode::ok && !to.fenced && to.open && !to.host->dead();
    if (heard && to.inbound.size() >= room) {  // receiver not ready (RNR): the NIC retries
      if (!from.retrying) fabric.simulation_.in(kMillisecond, &Fabric::deliver_again, object, side);
      from.retrying = true;
      return;
    }
    from.arrived.erase(from.arrived.begin() + static_cast<std::ptrdiff_t>(i));
    ++from.current_turn;
    flight.waits_turn = false;
    ++flight.frames;
    if (heard) {
      Inbound inbound;
      inbound.kind = flight.command.slice.op == Op::message ? EventKind::message : EventKind::immediate;
      inbound.immediate = flight.command.slice.immediate;
      if (inbound.kind == EventKind::message) inbound.bytes = flight.payload;
      to.inbound.push_back(std::move(inbound));
      to.ring();
      fabric.answer(flight);
    }
    fabric.drop(flight);
    i = 0;  // others may have waited for this turn
  }
}

void Fabric::deliver_again(void* object, std::uint64_t side, std::uint64_t) {
  static_cast<SimLink*>(object)->ends[side].retrying = false;
  deliver(object, side, 0);
}

void Fabric::answer(Flight& flight) {
  send(flight, flight.side, simulation_.now(), 0, &Fabric::acknowledge, 0, 0);
}

// The initiator gets the result, unless the link broke on the way back.
void Fabric::acknowledge(void* object, std::uint64_t, std::uint64_t) {
  Flight& flight = *static_cast<Flight*>(object);
  Fabric& fabric = *flight.link->fabric;
  if (fabric.holds(flight, flight.side, &Fabric::acknowledge, 0, 0)) return;
  LinkEnd& home = flight.link->ends[flight.side];
  Random& random = fabric.simulation_.random();
  const bool gone = flight.ended || home.fenced || !home.open || home.host->dead();
  if (!gone && !(flight.link->broken && random.chance(700))) {
    const NicBehavior& how = fabric.nature(*flight.link, flight.side);
    const LinkEnd& far = flight.link->ends[1 - flight.side];
    if (fabric.simulation_.blocked(far.host->index(), home.host->index()) ||
        (how.lose_per_mille != 0 && random.chance(how.lose_per_mille))) {
      ++flight.frames;
      fabric.simulation_.in(how.retransmit, &Fabric::acknowledge, object);
    } else {
      fabric.end_flight(flight, flight.result);
      if (flight.result != ErrorCode::ok && how.error_breaks_link) fabric.break_link(*flight.link);
    }
  }
  fabric.drop(flight);
}

}  // namespace fairway::sim

#include "sim/fabric.h"

// What happens after a slice's last frame: messages and immediates are delivered in order, the initiator gets its
// acknowledgement.
namespace fairway::sim {

using transport::EventKind;
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

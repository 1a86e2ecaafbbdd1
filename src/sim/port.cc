#include <algorithm>
#include <cstring>
#include <string>

#include "sim/fabric.h"
#include "transport/command.h"

namespace fairway::sim {

using transport::Event;
using transport::EventKind;
using transport::loopback::Command;
using transport::loopback::End;
using transport::loopback::Port;

FabricPort::~FabricPort() {
  close();
  end_.open = false;
  end_.ready = nullptr;
  end_.doorbell.reset();
}

std::size_t FabricPort::post(std::span<const Command> commands) {
  if (end_.fencing || end_.fenced || end_.host->dead()) return 0;
  Random& random = fabric_.simulation_.random();
  const std::uint32_t depth = fabric_.nics_[end_.nic]->devices[end_.device].capabilities.queue_depth;
  std::size_t most = std::min<std::size_t>(commands.size(), depth - std::min(depth, end_.in_flight));
  const NicBehavior& nature = fabric_.nature(link_, side_);
  if (nature.partial_post_per_mille != 0 && random.chance(nature.partial_post_per_mille)) {
    most = random.below(most + 1);
    fabric_.simulation_.in(random.between(kMicrosecond, 50 * kMicrosecond), &Fabric::ring, &link_, side_);
  }
  for (std::size_t i = 0; i < most; ++i) fabric_.launch(link_, side_, commands[i]);
  return most;
}

// `done`: the far end is there, and it is this call's luck.
transport::AtOnce FabricPort::try_at_once() {
  using transport::AtOnce;
  const NicBehavior& nature = fabric_.nature(link_, side_);
  if (nature.at_once_per_mille == 0) return AtOnce::never;
  if (end_.fencing || end_.fenced || end_.host->dead() || link_.broken) return AtOnce::later;
  LinkEnd& far = link_.ends[1 - side_];
  if (far.host == nullptr || !far.open || far.fencing || far.fenced || far.host->dead()) return AtOnce::later;
  if (fabric_.held_until(link_, side_) != 0 || fabric_.held_until(link_, 1 - side_) != 0) return AtOnce::later;
  const std::size_t here = end_.host->index(), there = far.host->index();
  if (fabric_.simulation_.blocked(here, there) || fabric_.simulation_.blocked(there, here)) return AtOnce::later;
  if (!fabric_.simulation_.random().chance(nature.at_once_per_mille)) return AtOnce::later;
  return AtOnce::done;
}

// In no time at all: what the target has ended by now is refused, and nothing overtakes what must arrive before.
transport::AtOnce FabricPort::move_now(const transport::SmallMove& move, RegionId region) {
  using transport::AtOnce;
  using transport::Op;
  if (const AtOnce can = try_at_once(); can != AtOnce::done) return can;
  LinkEnd& far = link_.ends[1 - side_];
  const bool tells = move.op == Op::write_immediate;
  if (tells && end_.next_turn != end_.current_turn) return AtOnce::later;
  transport::RegionTable::Resolved at;
  if (far.regions->resolve_for_cpu(region, move.remote_offset, move.length, transport::needed_access(move.op), at) !=
      ErrorCode::ok)
    return AtOnce::later;
  if (move.length != 0) {
    if (move.op == Op::read)
      std::memmove(move.local, at.address, move.length);
    else
      std::memmove(at.address, move.local, move.length);
  }
  if (tells) {
    Inbound& inbound = far.inbound.emplace_back();
    inbound.kind = EventKind::immediate;
    inbound.immediate = move.immediate;
    far.ring();
  }
  ++fabric_.moved_at_once_;
  fabric_.simulation_.note(end_.host->index(), [&] {
    return "moves " + std::to_string(move.length) + " bytes at once, op " +
           std::to_string(static_cast<unsigned>(move.op)) + ", on link " + std::to_string(link_.name);
  });
  return AtOnce::done;
}

transport::AtOnce FabricPort::send_now(std::span<const std::byte> head, std::span<const std::byte> tail) {
  using transport::AtOnce;
  if (const AtOnce can = try_at_once(); can != AtOnce::done) return can;
  if (end_.next_turn != end_.current_turn) return AtOnce::later;
  LinkEnd& far = link_.ends[1 - side_];
  Inbound& inbound = far.inbound.emplace_back();
  inbound.kind = EventKind::message;
  inbound.bytes.assign(head.begin(), head.end());
  inbound.bytes.insert(inbound.bytes.end(), tail.begin(), tail.end());
  far.doorbell->ring();
  ++fabric_.sent_at_once_;
  fabric_.simulation_.note(end_.host->index(), [&] {
    return "sends " + std::to_string(head.size() + tail.size()) + " bytes at once on link " +
           std::to_string(link_.name);
  });
  return AtOnce::done;
}

std::size_t FabricPort::poll(std::span<Event> events, Time, std::uint64_t&) {
  lent_.clear();
  end_.told = false;
  std::size_t stored = 0;
  while (stored < events.size()) {
    // Received messages and completions come in any order; `fenced` comes last.
    const bool hear =
        !end_.inbound.empty() && (end_.outcomes.empty() || end_.outcomes.front().kind == EventKind::fenced ||
                                  fabric_.simulation_.random().chance(500));
    if (!hear && end_.outcomes.empty()) break;
    Event& event = events[stored++] = {};
    if (hear) {
      Inbound& inbound = end_.inbound.front();
      fabric_.simulation_.note(end_.host->index(), [&] {
        return "hears " +
               (inbound.kind == EventKind::message ? std::to_string(inbound.bytes.size()) + " bytes" : "an immediate") +
               " on link " + std::to_string(link_.name);
      });
      event.kind = inbound.kind;
      event.value = inbound.immediate;
      if (inbound.kind == EventKind::message) {
        lent_.push_back(std::move(inbound.bytes));
        event.bytes = lent_.back();
      } else {
        ++end_.immediates;
      }
      end_.inbound.pop_front();
      continue;
    }
    const Outcome& outcome = end_.outcomes.front();
    event.kind = outcome.kind;
    event.token = outcome.token;
    event.value = outcome.kind == EventKind::fenced ? end_.immediates : outcome.value;
    if (outcome.kind == EventKind::failed)
      event.status = Status(outcome.code, "the simulated device ended the slice").with_effect(outcome.effect);
    if (outcome.kind == EventKind::link_down) event.status = Status(ErrorCode::link_failed, "the simulated link broke");
    if (outcome.kind == EventKind::done || outcome.kind == EventKind::failed) --end_.in_flight;
    end_.outcomes.pop_front();
  }
  if (end_.ready != nullptr && !idle() && !std::exchange(end_.told, true)) end_.ready->push_back(end_.slot);
  return stored;
}

void FabricPort::cancel(transport::SliceToken token) {
  if (fabric_.held_until(link_, side_) != 0) return;
  for (Flight* flight : end_.flights)
    if (flight->command.slice.token == token && !flight->left) return fabric_.end_flight(*flight, ErrorCode::cancelled);
}

void FabricPort::cancel_memory(std::uint64_t local_handle) {
  for (Flight* flight : end_.flights)
    if (flight->command.slice.local_handle == local_handle) {
      ++flight->frames;
      fabric_.simulation_.in(fabric_.simulation_.random().between(kMicrosecond, 500 * kMicrosecond),
                             &Fabric::abort_flight, flight);
    }
}

bool FabricPort::uses(std::uint64_t local_handle) const {
  return std::ranges::any_of(
             end_.flights, [&](const Flight* flight) { return flight->command.slice.local_handle == local_handle; }) ||
         std::ranges::any_of(end_.outcomes, [&](const Outcome& outcome) {
           return outcome.kind != EventKind::link_down && outcome.kind != EventKind::fenced &&
                  outcome.local_handle == local_handle;
         });
}

void FabricPort::fence() {
  if (end_.fencing || end_.fenced) return;
  end_.fencing = true;
  fabric_.break_link(link_);
  Random& random = fabric_.simulation_.random();
  const Time most = random.chance(100) ? 5 * kMillisecond : 100 * kMicrosecond;
  fabric_.simulation_.in(random.between(kMicrosecond, most), &Fabric::fence_done, &link_, side_);
}

void FabricPort::close() {
  if (end_.fenced) return;
  end_.fencing = true;
  fabric_.break_link(link_);
  fabric_.fence_now(link_, side_);
}

std::span<const transport::Device> FabricWire::devices() const {
  return fabric_.nics_[nic_]->devices;
}

bool FabricWire::ready(transport::DeviceIndex device) const {
  return fabric_.simulation_.now() >= fabric_.nics_[nic_]->down_until[device];
}

bool FabricWire::tells_ready() const {
  return fabric_.nics_[nic_]->natures.front().steady;
}

bool FabricWire::shares_fence(transport::DeviceIndex device) const {
  return fabric_.nics_[nic_]->natures[device].shares_fence;
}

void FabricWire::flush() {
  fabric_.nics_[nic_]->posted.flush();
}

std::unique_ptr<Port> FabricWire::offer(std::uint64_t id, End end) {
  fabric_.links_.push_back(std::make_unique<SimLink>());
  SimLink& link = *fabric_.links_.back();
  link.fabric = &fabric_;
  link.name = fabric_.links_.size();
  link.ends[0].nic = nic_;
  fabric_.offers_[id] = &link;
  return fabric_.open_end(link, 0, *fabric_.nics_[nic_], std::move(end));
}

std::unique_ptr<Port> FabricWire::attach(std::uint64_t id, End end) {
  const auto offer = fabric_.offers_.find(id);
  if (offer == fabric_.offers_.end()) return nullptr;
  SimLink& link = *offer->second;
  fabric_.offers_.erase(offer);
  link.ends[1].nic = nic_;
  auto port = fabric_.open_end(link, 1, *fabric_.nics_[nic_], std::move(end));
  if (!ready(link.ends[1].device)) fabric_.break_link(link);
  if (link.broken) fabric_.simulation_.in(kMicrosecond, &Fabric::tell_down, &link, 1);
  return port;
}

}  // namespace fairway::sim

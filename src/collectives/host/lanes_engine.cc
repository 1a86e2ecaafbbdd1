// The way by the engine: a message is a write into a slot of the peer's zone, with a counter.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "collectives/host/lanes.h"

namespace fairway::collectives {
std::uint32_t Lanes::own_counter(int peer, std::uint64_t message) const {
  return first_immediate_ + place(peer, rank_) * kSlots + static_cast<std::uint32_t>(message % kSlots);
}
std::uint32_t Lanes::own_bell(int peer) const {
  return first_immediate_ + static_cast<std::uint32_t>(size() - 1) * kSlots + place(peer, rank_);
}
std::uint64_t Lanes::counted(std::uint32_t immediate) const {
  return engine_.counter(immediate) - baseline(immediate);
}

Lanes::Outgoing* Lanes::free_outgoing() {
  for (Outgoing& one : outgoing_)
    if (!one.transfer) return &one;
  return nullptr;
}

Status Lanes::finished(Outgoing& outgoing, const Completion& completion, int& peer) {
  outgoing.transfer = {};
  --in_flight_;
  if (completion.status || outgoing.only_tells) return {};
  peer = outgoing.peer;
  return completion.status;
}

Status Lanes::collect(int& peer) {
  if (in_flight_ != 0) {
    for (Outgoing& one : outgoing_) {
      if (!one.transfer) continue;
      const auto done = engine_.wait(one.transfer, Timeout{0});
      if (!done && done.status().code() == ErrorCode::timed_out) continue;
      if (!done) return done.status();
      if (Status status = finished(one, *done, peer); !status) return status;
    }
  }
  if (!all_mapped())
    for (int other = 0; other < size(); ++other)
      if (!is_mapped(other)) give_back(other);
  return {};
}

Blocked Lanes::outgoing_left() const {
  if (in_flight_ != 0)
    for (const Outgoing& one : outgoing_)
      if (one.transfer && (!one.only_tells || is_mapped(one.peer)))
        return {Blocked::On::transfer, one.peer, 0, 0, one.transfer};
  if (!touched_.empty()) return {Blocked::On::transfer, touched_.front()};  // a bell that had no room
  return {};
}

Blocked Lanes::send_blocked_by_engine(int peer) {
  const Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  const std::uint32_t credits = own_bell(peer);
  if (const std::uint64_t given = counted(credits); lane.sent - given * kGivenBack >= kSlots)
    return slots_owed() ? oldest_outgoing()
                        : Blocked{Blocked::On::counter, peer, credits, baseline(credits) + given + 1, {}};
  return outgoing_blocked();
}

Blocked Lanes::outgoing_blocked() {
  if (free_outgoing() != nullptr && engine_.writable()) return {};
  return oldest_outgoing();
}

// What a rank waits for that has no room in the engine. Of no transfer: the engine is full of others' requests.
Blocked Lanes::oldest_outgoing() const {
  // The oldest one ends first. A rank that waited for a later one would send to many peers at half the rate.
  const Outgoing* oldest = &outgoing_.front();
  for (const Outgoing& one : outgoing_)
    if (one.transfer && (!oldest->transfer || one.order < oldest->order)) oldest = &one;
  return {Blocked::On::transfer, oldest->peer, 0, 0, oldest->transfer};
}

// Without an extent: only the counter.
Status Lanes::write(int peer, const Extent* extent, std::uint32_t immediate, Outgoing& one) {
  RequestOptions options;
  options.notify = notify_counter(immediate);
  const PeerId to = members_[static_cast<std::size_t>(peer)].peer;
  const auto id = extent != nullptr ? engine_.write(to, *extent, options)
                                    : engine_.write(to, Layout(std::span<const Extent>()), options);
  if (!id) return id.status();
  one.transfer = *id;
  ++in_flight_;
  one.peer = peer;
  one.order = ++posted_;
  one.only_tells = extent == nullptr;
  return {};
}

// Into the next slot there, and its counter tells.
Status Lanes::write_message(int peer, const Extent& extent, Outgoing& one) {
  Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  const std::uint32_t counter = lane.first_immediate + place(rank_, peer) * kSlots;
  const Status status = write(peer, &extent, counter + static_cast<std::uint32_t>(lane.sent % kSlots), one);
  if (status) ++lane.sent;
  return status;
}

// Where the next message to a peer begins: with its header.
RemoteAddress Lanes::next_place(int peer) {
  const Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  return {lane.zone.id, header_at(place(rank_, peer), lane.sent)};
}

Status Lanes::send_by_engine(int peer, const Header& header, const void* payload) {
  Outgoing& one = *free_outgoing();
  const std::uint64_t from = static_cast<std::uint64_t>(&one - outgoing_.data()) * (kHeaderBytes + slot_bytes_);
  std::memcpy(stage_.address + from, &header, kHeaderBytes);
  if (header.bytes != 0) std::memcpy(stage_.address + from + kHeaderBytes, payload, header.bytes);
  return write_message(peer, {{stage_.id, from, kHeaderBytes + header.bytes}, next_place(peer)}, one);
}

Status Lanes::send_rest_from(int peer, const Slice& payload) {
  RemoteAddress to = next_place(peer);
  to.offset += kHeaderBytes;
  return write_message(peer, {payload, to}, *free_outgoing());
}

Blocked Lanes::receive_blocked_by_engine(int peer) {
  const Lane& lane = lanes_[static_cast<std::size_t>(peer)];
  if (slots_owed()) return oldest_outgoing();
  const std::uint32_t counter = own_counter(peer, lane.taken);
  const std::uint64_t need = lane.taken / kSlots + 1;
  if (counted(counter) < need) return {Blocked::On::counter, peer, counter, baseline(counter) + need, {}};
  return {};
}

const std::byte* Lanes::payload_by_engine(int peer) {
  return zone_.address + header_at(place(peer, rank_), lane(peer).taken) + kHeaderBytes;
}

// What the rank sends on goes before the word that slots are free: in a chain of ranks each such word would delay all
// that follow.
void Lanes::done_by_engine(int peer) {
  Lane& one = lane(peer);
  if (++one.taken - one.given >= kGivenBack) owes_ = peer;
}

// Gives back what done_with() left to give. True: there is no room for that yet.
bool Lanes::slots_owed() {
  if (owes_ < 0) return false;
  if (free_outgoing() == nullptr || !engine_.writable()) return true;
  give_back(owes_);
  owes_ = -1;
  return false;
}

// A message of no bytes that only counts.
Status Lanes::ring(int peer) {
  const std::uint32_t bell =
      lane(peer).first_immediate + static_cast<std::uint32_t>(size() - 1) * kSlots + place(rank_, peer);
  return write(peer, nullptr, bell, *free_outgoing());
}

// If the engine is full of others' requests, collect() tries again.
void Lanes::give_back(int peer) {
  Lane& one = lane(peer);
  if (one.taken - one.given < kGivenBack || free_outgoing() == nullptr) return;
  // A peer that is gone needs none.
  if (ring(peer).code() != ErrorCode::queue_full) one.given += kGivenBack;
}

}  // namespace fairway::collectives

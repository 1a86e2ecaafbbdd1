// The mapped way: ranks of one host store into each other's zones (mapped_pair.h).
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "collectives/host/lanes.h"

namespace fairway::collectives {

bool Lanes::map(const std::vector<int>& peers, Time deadline) {
  for (const int peer : peers) {
    const auto mapping = engine_.map(lane(peer).zone, kCpu, until(deadline));
    const bool whole = mapping && mapping->size_bytes >= zone_bytes() && includes(mapping->access, Access::write);
    if (mapping) lane(peer).mapping = *mapping;
    if (!whole) {
      unmap_all();
      return false;
    }
  }
  return true;
}

void Lanes::unmap_all() {
  mapped_ = 0;
  pairs_.assign(pairs_.size(), {});
  for (Lane& one : lanes_) {
    if (one.mapping.id) (void)engine_.unmap(one.mapping.id);
    one.mapping = {};
  }
}

void Lanes::use_mapped() {
  for (int peer = 0; peer < size(); ++peer) {
    const Lane& one = lane(peer);
    if (!one.mapping.id) continue;
    pair(peer) = MappedPair(zone_.address + block_at(place(peer, rank_)),
                            one.mapping.address + block_at(place(rank_, peer)), stride(), one.sent, one.taken);
    ++mapped_;
    if (owes_ == peer) owes_ = -1;
  }
}

void Lanes::enter(const Header& call) {
  if (!any_mapped()) return;
  call_digest_ = digest_of(call);
  HeaderWords& words = reinterpret_cast<ZoneHead*>(zone_.address)->calls[call.operation % kCalls];
  const auto own = std::bit_cast<HeaderWords>(call);
  for (std::size_t i = 0; i < words.size(); ++i) tell(words[i], own[i]);
}

void Lanes::wake_touched() {
  SleepWord::published();
  std::erase_if(touched_, [this](int peer) {
    Lane& one = lane(peer);
    one.owes_bell = one.owes_bell || their_head(peer).sleep.claim(static_cast<std::uint32_t>(rank_));
    if (one.owes_bell && (!can_ring() || ring(peer).code() == ErrorCode::queue_full)) return false;
    one.owes_bell = one.touched = false;
    return true;
  });
}

// Bells that the engine has done are collected when all places are taken. A closed engine says so in wait().
bool Lanes::can_ring() {
  int peer = -1;
  if (free_outgoing() == nullptr) (void)collect(peer);
  return free_outgoing() != nullptr;
}

Status Lanes::sleep(const Blocked& blocked, Timeout most) {
  const std::uint32_t bell = own_bell(blocked.peer);
  const std::uint64_t rung = engine_.counter(bell);
  SleepWord& word = reinterpret_cast<ZoneHead*>(zone_.address)->sleep;
  word.announce(static_cast<std::uint32_t>(blocked.peer));
  const Status status = ready(blocked) ? Status() : engine_.wait_counter(bell, rung + 1, most);
  word.awake();
  return status || status.code() == ErrorCode::timed_out ? Status() : status;
}

}  // namespace fairway::collectives

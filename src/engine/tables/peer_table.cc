#include "engine/tables/peer_table.h"

#include <algorithm>

namespace fairway::engine {

PeerTable::PeerTable(std::uint32_t capacity) : capacity_(capacity), slots_(new Slot[capacity]) {
  for (std::uint32_t slot = 0; slot < capacity; ++slot) free_.push_back(slot);
}

void PeerTable::set_state(Slot& slot, State state) {
  slot.info.state = state;
  slot.word.store(pack(slot.info.id.generation, state), std::memory_order_release);
  changes.fetch_add(1, std::memory_order_release);
}

Result<PeerId> PeerTable::add(control::SessionId session, const control::PeerInfo& peer) {
  std::lock_guard lock(mutex_);
  if (free_.empty())
    return Status(ErrorCode::resource_exhausted,
                  "all " + std::to_string(capacity_) + " peers are connected: raise EngineOptions::max_peers");
  const std::uint32_t index = free_.front();
  free_.pop_front();
  Slot& slot = slots_[index];
  const auto last = by_session_.find(slot.info.session);
  if (last != by_session_.end() && last->second == index) by_session_.erase(last);
  by_session_[session] = index;
  slot.info = {{index, slot.info.id.generation + 1}, State::opening, session, peer, {}};
  slot.at_once.store(false, std::memory_order_relaxed);
  set_state(slot, State::opening);
  return slot.info.id;
}

void PeerTable::set_at_once(PeerId id) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[id.slot];
  if (slot.info.id == id) slot.at_once.store(true, std::memory_order_relaxed);
}

void PeerTable::set_ready(PeerId id) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[id.slot];
  if (slot.info.id == id && slot.info.state == State::opening) set_state(slot, State::ready);
}

void PeerTable::set_settled(PeerId id, Status no_link) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[id.slot];
  if (slot.info.id != id || slot.info.state != State::opening) return;
  slot.info.reason = std::move(no_link);
  set_state(slot, State::opening);
}

bool PeerTable::set_down(PeerId id, const Status& reason) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[id.slot];
  if (slot.info.id != id || slot.info.state == State::down) return false;
  slot.info.reason = reason;
  set_state(slot, State::down);
  return true;
}

void PeerTable::free(PeerId id) {
  std::lock_guard lock(mutex_);
  if (slots_[id.slot].info.id == id) free_.push_back(id.slot);
}

Status PeerTable::why_not(PeerId id) const {
  const Status why = why_ended(id);
  return why.code() == ErrorCode::cancelled ? Status(ErrorCode::closed, "the engine is closed") : why;
}

Status PeerTable::why_ended(PeerId id) const {
  if (id.slot >= capacity_ || !id) return {ErrorCode::not_found, "no such peer: use the PeerId that connect() gave"};
  std::lock_guard lock(mutex_);
  const Info& info = slots_[id.slot].info;
  if (info.id == id && info.state == State::down)
    return info.reason.is_ok() ? Status(ErrorCode::closed, "the peer was disconnected") : info.reason;
  return {ErrorCode::stale_incarnation, "this PeerId is of an earlier session: connect() again for a new one"};
}

std::optional<PeerTable::Info> PeerTable::find(PeerId id) const {
  if (id.slot >= capacity_ || !id) return std::nullopt;
  std::lock_guard lock(mutex_);
  const Info& info = slots_[id.slot].info;
  return info.id == id ? std::optional(info) : std::nullopt;
}

std::optional<PeerTable::Info> PeerTable::find_session(control::SessionId session) const {
  std::lock_guard lock(mutex_);
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? std::nullopt : std::optional(slots_[found->second].info);
}

std::string PeerTable::name_at(std::uint32_t slot) const {
  if (slot >= capacity_) return {};
  std::lock_guard lock(mutex_);
  const control::PeerInfo& peer = slots_[slot].info.peer;
  return peer.name.empty() ? peer.address : peer.name;
}

std::vector<PeerTable::Info> PeerTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Info> infos;
  for (std::uint32_t i = 0; i < capacity_; ++i)
    if (slots_[i].info.state == State::opening || slots_[i].info.state == State::ready) infos.push_back(slots_[i].info);
  return infos;
}

void PeerEvents::push(PeerEvent event) {
  std::lock_guard lock(mutex_);
  held_.push_back(std::move(event));
  for (std::size_t i = 0; i < held_.size();) {
    const PeerId peer = held_[i].peer;
    const bool behind = std::any_of(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const PeerEvent& each) { return each.peer == peer; });
    if (behind || waits(held_[i])) {
      ++i;
      continue;
    }
    const bool down = held_[i].kind == PeerEvent::Kind::down;
    tell(std::move(held_[i]));
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    if (down) i = 0;  // earlier events may have waited for it
  }
}

// Waits for the end of an earlier session with a peer of that name.
bool PeerEvents::waits(const PeerEvent& event) const {
  return event.kind == PeerEvent::Kind::up && std::any_of(up_.begin(), up_.end(), [&](const auto& each) {
           return each.second == event.name && each.first != event.peer && !peers_.is_usable(each.first);
         });
}

void PeerEvents::tell(PeerEvent event) {
  if (event.kind == PeerEvent::Kind::up) up_.emplace_back(event.peer, event.name);
  if (event.kind == PeerEvent::Kind::down)
    std::erase_if(up_, [&](const auto& each) { return each.first == event.peer; });
  if (events_.size() == kCapacity) {
    events_.pop_front();
    ++dropped_;
  }
  events_.push_back(std::move(event));
  waiting_.store(events_.size(), std::memory_order_seq_cst);
}

std::size_t PeerEvents::pop(std::span<PeerEvent> events) {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  while (count < events.size() && !events_.empty()) {
    events[count] = std::move(events_.front());
    events_.pop_front();
    if (dropped_ > 0) {
      events[count].reason =
          Status(events[count].reason.is_ok() ? ErrorCode::resource_exhausted : events[count].reason.code(),
                 std::to_string(dropped_) + " earlier peer events were dropped: nobody polled them; " +
                     events[count].reason.message());
      dropped_ = 0;
    }
    ++count;
  }
  waiting_.store(events_.size(), std::memory_order_seq_cst);
  return count;
}

}  // namespace fairway::engine

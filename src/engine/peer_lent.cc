#include <algorithm>

#include "engine/peer.h"
#include "engine/worker.h"

// The room that the peer lends to what is staged here: asked for with the first slot, given back when it is idle, when
// the peer wants it, or when a slot in it was lost.
namespace fairway::engine {

// kInPlace: not now, or with `why` set, never.
std::uint8_t Peer::lent_slot(Status& why) {
  if (lent_ == nullptr) lent_ = std::make_unique<Lent>();
  Lent& lent = *lent_;
  if (!lent.refused && worker_.now() < lent.refused_until) {
    why = lent.refused;
    return kInPlace;
  }
  if (lent.state == Lent::State::none) {
    lent.state = Lent::State::asked;
    lent.leaving = false;
    lent.busy = lent.lost = {};
    send(record::StageAsk{++lent.number});
  }
  if (lent.state != Lent::State::open || lent.leaving) return kInPlace;
  const std::uint8_t slot = SlotSet::outside(lent.busy, lent.lost);
  if (slot == kInPlace && !lent.lost.empty()) lent.leaving = true;
  return slot;
}

void Peer::on_stage_grant(const record::StageGrant& grant) {
  const auto& [number, code, described] = grant;
  if (lent_ == nullptr || lent_->state != Lent::State::asked || number != lent_->number)
    return violation("a room that was not asked for");
  lent_->state = Lent::State::none;
  lent_->refused = Status(code, "the peer stages nothing: " + std::string(to_string(code))).with_peer(text());
  worker_.again();
  if (code == ErrorCode::ok) {
    const auto room = parse_description(described.bytes);
    if (!room || room->size_bytes != kRoomBytes || !reached_by_cpu(room->kind)) return violation("a malformed room");
    lent_->refused = {};
    lent_->state = Lent::State::open;
    lent_->region = worker_.remotes().import(owner_, *room, lent_->refused);
    lent_->idle_since = worker_.now();
    wake_at(after(worker_.now(), kIdleRoom));
    lent_->leaving |= !lent_->refused;
  }
  if (!lent_->refused) lent_->refused_until = after(worker_.now(), kIdleRoom);
  end_lent();
}

void Peer::on_stage_recall(std::uint32_t number) {
  if (lent_ == nullptr || lent_->state == Lent::State::none || number != lent_->number)
    return;  // it went back meanwhile
  lent_->leaving = true;
  end_lent();
}

// Gives it back when it is to be, and nothing uses it.
void Peer::end_lent() {
  Lent& lent = *lent_;
  if (lent.state != Lent::State::open || !lent.busy.empty() || !(lent.leaving || !lent.lost.empty())) return;
  lent.state = Lent::State::none;
  if (lent.region) worker_.remotes().release(lent.region);
  lent.region = {};
  send(record::StageEnd{lent.number});
}

Time Peer::staging_timer(Time now) {
  if (lent_ == nullptr || lent_->state != Lent::State::open || !lent_->busy.empty()) return kNever;
  const Time ends = after(lent_->idle_since, kIdleRoom);
  if (now < ends) return ends;
  lent_->leaving = true;
  end_lent();
  return kNever;
}

// The peer is gone, and so is its room.
void Peer::forget_lent() {
  for (Step& step : worker_.staging().steps)
    if (step.state == Step::State::left && step.peer == id().slot) step.state = Step::State::free;
  if (lent_ != nullptr) lent_->state = Lent::State::none;
}

}  // namespace fairway::engine

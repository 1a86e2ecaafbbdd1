#include "engine/messages/record_sender.h"

#include <utility>

namespace fairway::engine {
namespace {

// Nobody waits for these: they may travel with what is sent next.
bool may_coalesce(RecordType type) {
  return type == RecordType::send_done || type == RecordType::credit || type == RecordType::receive_posted ||
         type == RecordType::receive_withdrawn;
}

}  // namespace

std::uint32_t RecordSender::acquire(RecordType type) {
  if (is_answer(type)) {
    if (replies_out_ >= kMaxReplies) {
      peer_.violation("more requests than it may have outstanding");
      return kNoSlot;
    }
    ++replies_out_;
  }
  return peer_.records().acquire();
}

void RecordSender::enqueue(std::uint32_t record, std::uint32_t owner) {
  peer_.records()[record].owner = owner;
  stream_.enqueue(record);
}

bool RecordSender::post() {
  const std::span<LinkView> views = routes_.views();
  bool any = false;
  for (std::uint32_t index = stream_.next(); index != kNoSlot; index = stream_.next()) {
    const Record& record = peer_.records()[index];
    int best = -1;
    bool carried = false;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const Link& link = links_[i];
      if (link.state != LinkState::ready || !link.has(transport::Op::message) ||
          link.capabilities->max_message_bytes < record.size)
        continue;
      carried = true;
      if (views[i].free_slots == 0) continue;
      // They keep to one link while it has little to do.
      const auto before = [&](const LinkView& a, const LinkView& b) {
        return a.rank != b.rank ? a.rank < b.rank : a.queued_bytes / kLittleQueued < b.queued_bytes / kLittleQueued;
      };
      if (best < 0 || before(views[i], views[static_cast<std::size_t>(best)])) best = static_cast<int>(i);
    }
    if (carried) {
      stuck_since_ = kNever;
    } else if (stuck_since_ == kNever) {
      stuck_since_ = links_.since_now();
      peer_.wake_at(peer_.now());
    }
    if (best < 0 || peer_.slices().free_count() == 0) break;
    post(index, static_cast<std::uint8_t>(best));
    any = true;
  }
  return any;
}

// The next one, to a link that has room for it.
void RecordSender::post(std::uint32_t index, std::uint8_t chosen) {
  Record& record = peer_.records()[index];
  Link& link = links_[chosen];
  stream_.posted(index);
  transport::Slice slice;
  slice.op = transport::Op::message;
  slice.link = link.id;
  slice.local = record.bytes.data();
  slice.length = record.size;
  slice.may_coalesce = may_coalesce(record.type());
  slice.token = peer_.slices().acquire(peer_.id().slot);
  SliceEntry& entry = peer_.slices()[slice.token];
  entry = {SliceUse::record,
           slice.op,
           false,
           chosen,
           peer_.id().slot,
           index,
           entry.serial,
           0,
           {0, 0, record.size, 1, chosen},
           links_.since_now()};
  links_.entered(link, false);
  link.queued_bytes += record.size;
  LinkView& view = routes_.view(chosen);
  --view.free_slots;
  view.queued_bytes += record.size;
  peer_.outbox().add(link.transport, slice);
}

// The links that a version of routes has are ready.
void RecordSender::find_quick() {
  quick_version_ = routes_.version();
  quick_ = nullptr;
  for (std::size_t i = 0; i < links_.size() && quick_ == nullptr && at_once_; ++i) {
    const Link& link = links_[i];
    if (link.state != LinkState::ready || !link.has(transport::Op::message)) continue;
    quick_ = dynamic_cast<transport::MovesAtOnce*>(peer_.transports()[link.transport].get());
    quick_link_ = static_cast<std::uint8_t>(i);
  }
}

bool RecordSender::post_now(std::span<std::byte> head, std::span<const std::byte> tail) {
  if (quick_version_ != routes_.version()) find_quick();
  if (quick_ == nullptr || !stream_.takes_one_now()) return false;
  Link& link = links_[quick_link_];
  const std::size_t size = head.size() + tail.size();
  if (link.capabilities->max_message_bytes < size) return false;
  ByteWriter(head.first(sizeof(std::uint32_t))).put(stream_.next_number());
  const transport::AtOnce answer = quick_->send_now(link.id, head, tail);
  if (answer == transport::AtOnce::never) quick_ = nullptr;
  if (answer != transport::AtOnce::done) return false;
  stream_.sent_now();
  ++link.slices;
  link.bytes_out += size;
  return true;
}

void RecordSender::post_ahead(std::uint32_t record, std::uint8_t link) {
  const Link& by = links_[link];
  if (stream_.next() == record && routes_.view(link).free_slots > 0 && peer_.slices().free_count() > 0 &&
      by.has(transport::Op::message) && by.capabilities->max_message_bytes >= peer_.records()[record].size)
    post(record, link);
}

void RecordSender::post_all_ahead(std::uint8_t link) {
  for (std::uint32_t record = stream_.next(); record != kNoSlot; record = stream_.next()) {
    post_ahead(record, link);
    if (stream_.next() == record) return;  // no room for it there
  }
}

Time RecordSender::run_timer() {
  if (stream_.next() == kNoSlot) stuck_since_ = kNever;
  if (stuck_since_ == kNever || links_.no_link_since() != kNever) return kNever;
  const Time bound = 2 * links_.bound();
  if (!links_.is_over(stuck_since_, bound)) return links_.look_at(stuck_since_, bound);
  peer_.end_session(
      Status(ErrorCode::link_failed, "no link is left that carries the engine's own messages").with_peer(peer_.text()));
  return kNever;
}

std::uint32_t RecordSender::arrived(std::uint32_t token) {
  const std::uint32_t record = peer_.slices()[token].owner;
  const std::uint32_t owner = peer_.records()[record].owner;
  if (is_answer(peer_.records()[record].type())) --replies_out_;
  peer_.slices().release(token);
  stream_.arrived(record);
  return owner;
}

void RecordSender::send_again(std::uint32_t token) {
  const std::uint32_t record = peer_.slices()[token].owner;
  peer_.slices().release(token);
  stream_.send_again(record);
  peer_.has_more();
}

void RecordSender::drop(std::uint32_t token) {
  const std::uint32_t record = peer_.slices()[token].owner;
  peer_.slices().release(token);
  peer_.records().release(record);
}

}  // namespace fairway::engine

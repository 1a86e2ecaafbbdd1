#include <algorithm>
#include <utility>

#include "engine/peer.h"
#include "engine/worker.h"

// The room lent to a peer that stages: it writes into slots, or reads them, and this side copies between them and its
// devices' memory. Each copy is checked against the region table right before it is queued.
namespace fairway::engine {
namespace {

using transport::Copier;

}  // namespace

void Peer::on_stage_ask(std::uint32_t number) {
  if (number == 0) return violation("a request for a room without a number");
  if (landing_ == nullptr) landing_ = std::make_unique<Landing>();
  if (landing_->state == Landing::State::none) return begin_landing(number);
  if (landing_->next != 0) return violation("requests for more than one room");
  landing_->next = number;  // it overtook the end of the one before
}

void Peer::begin_landing(std::uint32_t number) {
  landing_->number = number;
  landing_->next = 0;
  landing_->used = landing_->recalled = false;
  if (worker_.copier() == nullptr) return grant(ErrorCode::unsupported);
  landing_->state = Landing::State::waiting;
  worker_.staging().awaiting.push_back(id().slot);
  ++worker_.staging().watched;
  worker_.again();
}

void Peer::grant(ErrorCode code) {
  std::vector<std::byte> room;
  if (code == ErrorCode::ok) room = format_description(worker_.locals().describe(landing_->region), record_limit());
  send(record::StageGrant{landing_->number, code, {room}});
}

// In each step of the worker, while a room is awaited or copies are under way. True: a device has copies.
bool Peer::turn_landing() {
  if (landing_ == nullptr) return false;
  Landing& landing = *landing_;
  switch (landing.state) {
    case Landing::State::none:
    case Landing::State::waiting: return false;
    case Landing::State::making: open_landing(); return false;
    case Landing::State::open: break;
  }
  bool queued = false;
  for (std::uint8_t slot = 0; slot < kSlots; ++slot) {
    Landing::Job& job = landing.jobs[slot];
    if (!job.busy) continue;
    if (!job.queued) queue_job(slot);
    if (!job.busy || !job.queued) continue;
    std::string why;
    const Copier::Readiness is = worker_.copier()->look(job.ticket, why);
    if (is == Copier::Readiness::opening)
      queued = true;
    else
      end_job(slot, is == Copier::Readiness::ready ? ErrorCode::ok : ErrorCode::system_error);
  }
  return queued;
}

void Peer::make_landing() {
  ++worker_.staging().landings;
  landing_->state = Landing::State::making;
  landing_->room = worker_.copier()->make_room(kRoomBytes);
  open_landing();
}

void Peer::open_landing() {
  const Copier::Readiness is = landing_->room->state.load(std::memory_order_acquire);
  if (is == Copier::Readiness::opening) return;
  --worker_.staging().watched;
  Status why(ErrorCode::resource_exhausted, "no memory");
  if (is == Copier::Readiness::ready)
    landing_->region = worker_.register_room(*landing_->room, Access::read | Access::write, why);
  if (landing_->region) {
    landing_->state = Landing::State::open;
    landing_->opened = worker_.now();
    return grant(ErrorCode::ok);
  }
  drop_landing();
  grant(why.code());
}

// One that nobody was granted.
void Peer::drop_landing() {
  landing_->room.reset();
  landing_->state = Landing::State::none;
  --worker_.staging().landings;
  worker_.again();
}

void Peer::recall_landing() {
  landing_->recalled = true;
  ++worker_.staging().recalled;
  send(record::StageRecall{landing_->number});
}

void Peer::on_stage_end(std::uint32_t number) {
  if (landing_ == nullptr || landing_->state != Landing::State::open || number != landing_->number || copies_for_peer())
    return violation("the end of a room that it has not, or still uses");
  close_landing();
  if (const std::uint32_t next = std::exchange(landing_->next, 0); next != 0) begin_landing(next);
}

// Its memory is freed, never lent again, once nothing can land in it any more.
void Peer::close_landing() {
  const RegionId region = std::exchange(landing_->region, {});
  landing_->state = Landing::State::none;
  const bool recalled = landing_->recalled;
  (void)worker_.services().regions.revoke(region);
  worker_.remove_region(
      region, this,
      [worker = &worker_, region, recalled, room = std::move(landing_->room)](const Status& fenced) mutable {
        if (recalled) --worker->staging().recalled;
        if (!fenced) return worker->keep_room(std::move(room));
        worker->services().regions.remove(region);
        --worker->staging().landings;
        worker->again();  // another peer may wait for its place
      });
}

void Peer::on_stage_copy(const StageCopy& copy, bool put) {
  const auto& [number, slot, region, parts] = copy;
  if (landing_ == nullptr || landing_->state != Landing::State::open || number != landing_->number || slot >= kSlots ||
      landing_->jobs[slot].busy)
    return violation("a copy of a slot that it has not");
  Landing::Job& job = landing_->jobs[slot];
  job.parts.clear();
  std::uint64_t left = kSlotBytes;
  for (const auto& [offset, length] : std::span(parts.all).first(parts.count)) {
    if (length > left) return violation("a copy of more than a slot");
    left -= length;
    job.parts.push_back({0, offset, length});
  }
  landing_->used = true;
  job.busy = true;
  job.queued = false;
  job.put = put;
  job.region = region;
  ++worker_.staging().watched;
  queue_job(slot);
}

void Peer::queue_job(std::uint8_t slot) {
  Landing::Job& job = landing_->jobs[slot];
  std::array<Copier::Copy, kMostParts> copies;
  std::byte* place = landing_->room->memory.address() + slot * kSlotBytes;
  const Access needed = job.put ? Access::write : Access::read;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const Step::Part& part : job.parts) {
    transport::RegionTable::Resolved at;
    const ErrorCode code = worker_.services().regions.resolve(job.region, part.remote, part.length, needed, at);
    if (code != ErrorCode::ok) return end_job(slot, code);
    if (reached_by_cpu(at.kind)) return end_job(slot, ErrorCode::unsupported);
    copies[count++] = job.put ? Copier::Copy{at.address, place + bytes, part.length}
                              : Copier::Copy{place + bytes, at.address, part.length};
    bytes += part.length;
  }
  std::string why;
  const Copier::Readiness is = worker_.copier()->copy(job.region, std::span(copies.data(), count),
                                                      bytes <= kUrgentBytes, nullptr, job.ticket, why);
  job.queued = is == Copier::Readiness::ready && count > 0;
  if (is == Copier::Readiness::refused) end_job(slot, ErrorCode::system_error);
  if (is == Copier::Readiness::ready && count == 0) end_job(slot, ErrorCode::ok);
  worker_.again();
}

void Peer::end_job(std::uint8_t slot, ErrorCode code) {
  landing_->jobs[slot].busy = landing_->jobs[slot].queued = false;
  --worker_.staging().watched;
  worker_.again();
  if (down_) {
    if (!copies_for_peer()) close_landing();
    return;
  }
  send(record::StageDone{landing_->number, slot, code});
}

bool Peer::copies_for_peer() const {
  return std::any_of(landing_->jobs.begin(), landing_->jobs.end(), [](const Landing::Job& job) { return job.busy; });
}

// A device copies to or from that region for the peer.
bool Peer::serves(RegionId region) const {
  return landing_ != nullptr && std::any_of(landing_->jobs.begin(), landing_->jobs.end(), [&](const Landing::Job& job) {
           return job.busy && job.queued && job.region == region;
         });
}

// The peer is gone. What a device copies for it ends by itself, and then the room.
void Peer::end_landing() {
  if (landing_ == nullptr) return;
  Landing& landing = *landing_;
  landing.next = 0;
  if (landing.state == Landing::State::waiting) {
    landing.state = Landing::State::none;
    std::erase(worker_.staging().awaiting, id().slot);
    --worker_.staging().watched;
  } else if (landing.state == Landing::State::making) {
    --worker_.staging().watched;
    drop_landing();
  } else if (landing.state == Landing::State::open) {
    for (Landing::Job& job : landing.jobs)
      if (job.busy && !job.queued) {
        job.busy = false;
        --worker_.staging().watched;
      }
    if (!copies_for_peer()) close_landing();
  }
}

}  // namespace fairway::engine

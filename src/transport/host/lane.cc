#include "transport/host/lane.h"

#include <algorithm>
#include <string>

namespace fairway::transport::host {
Lane::Lane(std::shared_ptr<Pair> pair, LinkId link, PeerIndex peer, RegionTable& regions, Imports& imports,
           EventQueue& events, CostCounters& counters, Mover* mover)
    : pair_(std::move(pair)),
      link_(link),
      peer_(peer),
      regions_(regions),
      imports_(imports),
      events_(events),
      counters_(counters),
      mover_(mover),
      writer_(pair_->out()),
      reader_(pair_->in()) {}

// Messages and immediates keep their order: none passes an immediate in bulk_.
bool Lane::post(const Command& command) {
  if (flights_.size() - free_.size() + events_.size() >= kQueueDepth) return false;  // counts events not polled yet
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(flights_.size()));
    flights_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Flight& flight = flights_[index];
  flight.place = Place::queued;
  flight.ended = flight.touched = false;
  flight.asked = flight.queued = 0;
  flight.code = ErrorCode::ok;
  flight.command = command;
  flight.cursor = {};
  const Slice& slice = flight.command.slice;
  const bool ordered = slice.op == Op::write_immediate || slice.op == Op::message;
  if (slice.length * slice.count > kSmall || (ordered && ordered_in_bulk_ > 0)) {
    bulk_.push_back(index);
    if (ordered) ++ordered_in_bulk_;
  } else {
    urgent_.push_back(index);
  }
  work(kSmall, 0);
  if (slice.op == Op::message && flight.place == Place::queued && !flight.ended)
    flight.bytes.assign(slice.local, slice.local + slice.length);
  return true;
}

void Lane::report(const Flight& flight, ErrorCode code, Effect effect, const std::string& why) {
  Event& event = events_.add(code == ErrorCode::ok ? EventKind::done : EventKind::failed);
  event.token = flight.command.slice.token;
  event.link = link_;
  event.peer = peer_;
  event.value = flight.value;
  if (code != ErrorCode::ok)
    event.status = Status(code, why.empty() ? describe_failure(code) : why).with_effect(effect);
}

// A flight with copies queued on a device ends after them.
void Lane::end(Flight& flight, ErrorCode code) {
  if (flight.queued > 0) {
    if (flight.code == ErrorCode::ok) flight.code = code;
    return;
  }
  if (!flight.ended) {
    const bool by_device = code == ErrorCode::system_error ||
                           (code == ErrorCode::invalid_argument && flight.command.slice.start_after != nullptr);
    const bool unknown = flight.asked > 0 && flight.command.slice.op != Op::read;
    report(flight, code,
           unknown          ? Effect::unknown
           : flight.touched ? Effect::partial
                            : Effect::not_applied,
           by_device ? why_ : std::string());
  }
  flight.ended = true;
  if (flight.asked == 0 && flight.place != Place::queued) release(flight);
}

void Lane::release(Flight& flight) {
  flight.place = Place::free;
  flight.bytes.clear();
  free_.push_back(static_cast<std::uint32_t>(&flight - flights_.data()));
}

void Lane::cancel(SliceToken token) {
  for (Flight& flight : flights_)
    if (flight.place != Place::free && flight.command.slice.token == token) end(flight, ErrorCode::cancelled);
}

void Lane::stop_memory(std::uint64_t local_handle) {
  for (Flight& flight : flights_)
    if (flight.place != Place::free && flight.command.slice.local_handle == local_handle)
      end(flight, ErrorCode::cancelled);
}

void Lane::fail(Status why) {
  if (broken_) return;
  broken_ = true;
  events_.add(EventKind::link_down, link_, std::move(why)).peer = peer_;
}

void Lane::ring() {
  if (queued()) mover_->flush();
  if (owes_nudge_) {
    owes_nudge_ = !writer_.push(Record());  // a nudge
    pushed_ = true;
  }
  if (!pushed_) return;
  pushed_ = false;
  if (pair_->ring()) counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
}

void Lane::nudge() {
  owes_nudge_ = true;
  ring();
}

bool Lane::nudged() {
  return std::exchange(nudged_, false);
}

bool Lane::queued(std::uint64_t local_handle) const {
  return std::any_of(batches_.begin(), batches_.end(), [&](const Batch& batch) {
    return !batch.over && batch.flight != kNoFlight &&
           flights_[batch.flight].command.slice.local_handle == local_handle;
  });
}

bool Lane::busy() const {
  if (state_ == State::fencing) return queued();  // a timer checks for the peer's last touch
  if (broken_ || state_ == State::closed) return false;
  if (!reader_.empty() || pair_->peer_end().closed.load(std::memory_order_seq_cst) != 0) return true;
  return more_ || queued();  // a device reports its copies only by a word in memory
}

void Lane::fence() {
  if (state_ != State::open) return;
  state_ = State::fencing;
  broken_ = true;
  if (queued()) mover_->flush();
  pair_->own_end().closed.store(1, std::memory_order_seq_cst);
  last_touch_ = Pair::Mark(*pair_);
  if (pair_->ring()) counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
}

bool Lane::copied() {
  collect_copies();
  return batches_.empty();
}

bool Lane::fenced() {
  if (state_ == State::open) return false;
  if (!copied() || !last_touch_.over(*pair_)) return false;
  if (state_ == State::closed) return true;
  take_rest();  // the peer wrote its last record before its last touch ended, so these are all
  close();
  return true;
}

bool Lane::in_touch() {
  return !last_touch_.over(*pair_) && last_touch_.in_touch();
}

void Lane::take_rest() {
  Record record;
  std::span<const std::byte> payload;
  for (std::uint32_t i = 0; i < kCells && reader_.pop(record, payload); ++i) apply(record, payload, true);
}

void Lane::close() {
  fence();
  state_ = State::closed;
  for (Flight& flight : flights_)
    if (flight.place != Place::free && !flight.ended) end(flight, ErrorCode::link_failed);
}

}  // namespace fairway::transport::host

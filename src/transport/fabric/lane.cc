#include "transport/fabric/lane.h"

#include <algorithm>
#include <cstring>

namespace fairway::transport::fabric {
namespace {

constexpr Time kDrainTimeout = 100 * kMillisecond;  // for requests that the peer's CPU still serves
constexpr int kLastPolls = 16;                      // without a completion, one after the other

}  // namespace

Result<Lane::Owner> Lane::make(Domain& domain, LinkId link, Inbox& inbox, std::uint64_t end_name) {
  Owner made(new Lane(domain, link, inbox));
  auto end = Endpoint::make(domain, end_name);
  if (!end) return end.status();
  made->end_ = std::move(*end);
  made->memory_ = LaneMemory::make();
  if (!made->memory_) return Status(ErrorCode::resource_exhausted, "fabric: no memory for the buffers of a link");
  if (domain.has_mode(FI_MR_LOCAL)) {
    iovec place{made->memory_.in(0), LaneMemory::kBytes};
    fi_mr_attr attributes{};
    attributes.mr_iov = &place;
    attributes.iov_count = 1;
    attributes.access = FI_SEND | FI_RECV;
    // Unique among lanes; no peer uses it.
    attributes.requested_key = domain.requested_key(reinterpret_cast<std::uintptr_t>(made->memory_.in(0)) >> 12);
    fid_mr* region = nullptr;
    int result = domain.calls().register_memory(domain.get(), &attributes, &region);
    if (result == 0) made->memory_region_.region.reset(region);
    if (result == 0 && domain.has_mode(FI_MR_ENDPOINT)) result = domain.calls().bind(region, made->end_->get());
    if (result != 0)
      return Status(ErrorCode::resource_exhausted,
                    "fabric: the buffers of a link cannot be registered (" + domain.text(result) +
                        "): raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)");
  }
  for (std::uint16_t i = kQueueDepth; i > 0; --i) made->free_flights_[made->free_flight_count_++] = i - 1;
  for (std::uint16_t i = 0; i < kReceives; ++i) made->free_buffers_[made->free_buffer_count_++] = i;
  made->operations_.resize(made->end_->operations());
  made->free_operations_.reserve(made->operations_.size());
  for (std::size_t i = made->operations_.size(); i > 0; --i)
    made->free_operations_.push_back(static_cast<std::uint16_t>(i - 1));
  for (std::size_t i = 0; i < kIn; ++i) {
    made->receives_[i].receive = true;
    made->receives_[i].index = static_cast<std::uint16_t>(i);
    if (Status status = made->post_receive(i); !status) return status;
  }
  return made;
}

bool Lane::by_message(const Slice& slice) const {
  return slice.op == Op::write_immediate && (slice.length == 0 || !domain_.has_immediates());
}

bool Lane::post(const Command& command, void* descriptor, const sys::BusGpu* gpu, const Key& remote) {
  const Slice& slice = command.slice;
  const bool received = slice.op == Op::message || slice.op == Op::write_immediate;  // uses a credit
  const bool buffered = slice.op == Op::message || by_message(slice);
  if (broken_ || closed_ || free_flight_count_ == 0) return false;
  if ((received && credits_.left() == 0) || (buffered && free_buffer_count_ == 0)) return false;
  const std::uint16_t index = free_flights_[--free_flight_count_];
  Flight& flight = flights_[index];
  flight = Flight();
  flight.live = flight.waiting = true;
  flight.command = command;
  flight.remote = remote;
  flight.descriptor = descriptor;
  flight.gpu = gpu;
  flight.buffer = buffered ? free_buffers_[--free_buffer_count_] : kNone;
  if (received) credits_.take();
  if (slice.op == Op::message) {
    put_message(memory_.out(flight.buffer) + FrameHeader::kBytes, {slice.local, slice.length});
    inbox_.copied_bytes.fetch_add(slice.length, std::memory_order_relaxed);
  }
  waiting_[(waiting_head_ + waiting_count_++) % kQueueDepth] = index;
  coalescible_ += slice.may_coalesce ? 1 : 0;
  return true;
}

void Lane::end(Flight& flight, ErrorCode code, Effect effect, const char* why) {
  if (flight.ended) return;
  flight.ended = true;
  Event& event = inbox_.add(code == ErrorCode::ok ? EventKind::done : EventKind::failed);
  event.token = flight.command.slice.token;
  event.link = link_;
  if (code != ErrorCode::ok) event.status = Status(code, why).with_effect(effect);
}

// Makes bytes that were read into GPU memory visible to work that starts there later. Recent GPUs need no flush.
bool Lane::arrived(const Flight& flight) {
  const bool waits = flight.gpu != nullptr && flight.command.slice.op == Op::read && flight.gpu->needs_flush();
  return !waits || flight.gpu->flush().is_ok();
}

void Lane::settle(Flight& flight) {
  if (!flight.live || flight.waiting || flight.out != 0 || flight.unacked) return;
  if (!broken_) {
    const Effect effect = flight.begun ? Effect::partial : Effect::not_applied;
    if (flight.wrong != ErrorCode::ok)
      end(flight, flight.wrong, effect, "a block leaves the local memory");
    else if (flight.cancelled)
      end(flight, ErrorCode::cancelled, effect, "cancelled before all of it was sent");
    else if (!arrived(flight))
      end(flight, ErrorCode::system_error, Effect::unknown, "the GPU driver failed to flush the bytes that were read");
    else
      end(flight, ErrorCode::ok, Effect::not_applied, nullptr);
  }
  if (!flight.ended) return;  // undecided until give_up()
  flight.live = false;
  if (flight.buffer != kNone) free_buffers_[free_buffer_count_++] = flight.buffer;
  free_flights_[free_flight_count_++] = static_cast<std::uint16_t>(&flight - flights_.data());
}

void Lane::cancel(SliceToken token) {
  for (Flight& flight : flights_) {
    if (!flight.live || flight.ended || !flight.waiting || flight.command.slice.token != token) continue;
    const Op op = flight.command.slice.op;
    if (!flight.cancelled && (op == Op::message || op == Op::write_immediate)) credits_.give_back();
    flight.cancelled = true;
    if (!flight.begun && !broken_)
      end(flight, ErrorCode::cancelled, Effect::not_applied, "cancelled before it was sent");
    return;
  }
}

template <class Uses>
bool Lane::stop(Uses uses, ErrorCode code, const char* why) {
  bool free = true;
  for (Flight& flight : flights_) {
    if (!flight.live || !moves(flight.command.slice) || !uses(flight)) continue;
    if (flight.waiting && !broken_) {
      cancel(flight.command.slice.token);
      if (!flight.ended && flight.out == 0) end(flight, code, Effect::partial, why);
    }
    free = free && (flight.out == 0 || stopped_);
  }
  return free;
}

bool Lane::stop_memory(std::uint64_t local_handle) {
  return stop([&](const Flight& each) { return each.command.slice.local_handle == local_handle; }, ErrorCode::cancelled,
              "its local memory is deregistered");
}

bool Lane::stop_region(RegionId remote) {
  bool free = true;
  for (Flight& flight : flights_) {
    if (!flight.live || !moves(flight.command.slice) || flight.command.region != remote) continue;
    if (flight.waiting && !flight.cancelled && !broken_) {
      if (flight.command.slice.op == Op::write_immediate) credits_.give_back();
      flight.cancelled = true;
      end(flight, ErrorCode::revoked, flight.begun ? Effect::partial : Effect::not_applied,
          "the peer has deregistered the memory");
    }
    free = free && (flight.out == 0 || stopped_);
  }
  return free;
}

void Lane::fail(Status why) {
  if (broken_ || closed_) return;
  broken_ = true;
  inbox_.add(EventKind::link_down, link_, std::move(why));
}

// First takes completions that have arrived, with the last immediates, which the peer may see as delivered; polls an
// empty queue several times, since providers progress in steps. Then closes the endpoint, which ends all access of the
// epoch: this side's operations are discarded, and the peer's find no endpoint. If the peer's CPU accesses this memory
// itself, waits for this side's requests to it first.
void Lane::close(Clock& clock) {
  if (closed_) return;
  broken_ = closed_ = true;
  std::array<fi_cq_data_entry, 16> some;
  const Time give_up_at = after(clock.now(), kDrainTimeout);
  for (int empty = 0;;) {
    const ssize_t count = end_->poll(some);
    for (ssize_t i = 0; i < count; ++i) take(some[static_cast<std::size_t>(i)]);
    if (count > 0) {
      empty = 0;
      continue;
    }
    if (count == -FI_EAVAIL && take_error()) continue;
    if (count != -FI_EAGAIN) break;
    const bool waits = domain_.peer_cpu_access() && out_ != 0 && clock.now() < give_up_at;
    if (!waits && ++empty == kLastPolls) break;
  }
  shut();
}

// Closes bound memory first: otherwise the provider refuses to close the endpoint.
void Lane::shut() {
  broken_ = closed_ = true;
  if (!end_ || open_) return;
  if (domain_.peer_cpu_access() && out_ != 0) why_not_stopped_ = "the peer's CPU may still serve requests";
  bound_.clear();
  if (domain_.has_mode(FI_MR_ENDPOINT)) memory_region_.region.reset();
  if (const int result = end_->close(); result != 0) {
    why_not_stopped_ = "the provider did not close its endpoint: " + domain_.text(result);
    open_ = true;
  } else {
    end_.reset();
  }
  stopped_ = why_not_stopped_.empty();
}

void Lane::add_in_flight(std::vector<std::uint64_t>& local, std::vector<std::uint64_t>& remote) const {
  for (const Flight& flight : flights_) {
    if (!flight.live || flight.out == 0 || !moves(flight.command.slice)) continue;
    local.push_back(flight.command.slice.local_handle);
    remote.push_back(handle_of(flight.command.region));
  }
}

void Lane::give_up() {
  for (Flight& flight : flights_) {
    if (!flight.live) continue;
    const bool harmless = !flight.begun || flight.command.slice.op == Op::read;
    end(flight, ErrorCode::link_failed, harmless ? Effect::not_applied : Effect::unknown,
        "the link broke before the peer had answered");
  }
}

const Registered* Lane::bound(std::uint64_t handle) const {
  const auto found = bound_.find(handle);
  return found == bound_.end() ? nullptr : &found->second;
}

int Lane::unbind(std::uint64_t handle) {
  const auto found = bound_.find(handle);
  if (found == bound_.end()) return 0;
  const int result = fabric::close(found->second.region);
  if (result == 0) bound_.erase(found);
  return result;
}

Result<const Registered*> Lane::bind(std::uint64_t handle, const Region& memory, Rng& random) {
  if (const Registered* known = bound(handle)) return known;
  if (closed_) return Status(ErrorCode::link_failed, "fabric: the link is closed");
  auto made = register_with(domain_, memory, random, end_->get());
  if (!made) return made.status();
  return &bound_.emplace(handle, std::move(*made)).first->second;
}

}  // namespace fairway::transport::fabric

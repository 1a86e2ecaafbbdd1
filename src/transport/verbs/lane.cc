#include "transport/verbs/lane.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/verbs/transport.h"

namespace fairway::transport::verbs {

Result<std::unique_ptr<Lane>> Lane::make(Port& port, LinkId link, Inbox& inbox, std::uint64_t name,
                                         std::uint32_t first_psn, const Secret& secret) {
  std::unique_ptr<Lane> made(new Lane(port, link, inbox));
  const auto most = [](int gathers) { return static_cast<std::size_t>(std::clamp(gathers, 1, int{kGathers})); };
  made->most_gathers_ = most(port.limits().gathers);
  made->most_read_gathers_ = std::min(made->most_gathers_, most(port.limits().read_gathers));
  auto pair = QueuePair::make(port, {kSends, LaneMemory::kIn, static_cast<std::uint32_t>(made->most_gathers_)}, name);
  if (!pair) return pair.status();
  made->pair_ = std::move(*pair);
  made->memory_ = LaneMemory::make();
  const auto registered = [&](void* memory, std::size_t size, int access) {
    return OwnRegion(port.register_memory(memory, size, access, false), {&port.library()});
  };
  if (made->memory_) made->memory_region_ = registered(made->memory_.get(), LaneMemory::kBytes, abi::kLocalWrite);
  if (made->memory_region_ == nullptr) return port.refusal("the memory of a link cannot be registered", errno);
  if (port.iwarp()) {  // iWARP answers a read with an RDMA write
    made->sink_region_ = registered(made->memory_.sink(), 8, abi::kLocalWrite | abi::kRemoteWrite);
    if (made->sink_region_ == nullptr) return port.refusal("the memory of a link cannot be registered", errno);
  }
  for (std::size_t i = 0; i < LaneMemory::kIn; ++i) made->give_receive(i);
  if (!made->ring_receives()) return Status(ErrorCode::system_error, "verbs: ibv_post_recv failed");
  for (std::uint16_t i = 0; i < kReceives; ++i) made->free_out_[made->free_outs_++] = i;
  Endpoint& own = made->own_;
  own.port = port.address();
  own.number = made->pair_->number();
  own.first_psn = first_psn & 0xff'ffff;
  own.mtu = port.mtu();
  own.reads = static_cast<std::uint8_t>(std::clamp(port.limits().reads_in, 1, kMostReads));
  own.receives = kReceives;
  own.word = reinterpret_cast<std::uintptr_t>(port.word()->address);
  own.word_key = port.word()->rkey;
  own.secret = secret;
  return made;
}

// Memory that the NIC may still reach is not freed.
Lane::~Lane() {
  const int pair = pair_ == nullptr ? 0 : pair_->destroy();  // first: it uses the memory
  bool ended = port_.not_ended("ibv_destroy_qp", pair).is_ok();
  for (OwnRegion* each : {&memory_region_, &sink_region_})
    ended &= port_.not_ended("ibv_dereg_mr", verbs::end(*each)).is_ok();
  if (!ended) memory_.leak();
}

std::optional<QueuePair::Transitions> Lane::connect(const Endpoint& theirs) {
  theirs_ = theirs;
  no_immediates_ = own_.port.no_immediates || theirs.port.no_immediates;
  credits_ = Credits(theirs.receives, kReceives);
  probe_due_ = awaits_first_ = !no_immediates_;
  std::memset(memory_.out(0), 0, mtu_bytes());  // payload of the probe
  if (wants_cm(own_.port, theirs.port)) return {};
  return pair_->plan(own_, theirs);
}

// Each GPU has its own path over the bus, and host memory another, so each needs its own flush.
Word Lane::flush_word_of(const Flight& flight) const {
  return flight.remote.word.address != 0 ? flight.remote.word : Word{theirs_.word, theirs_.word_key};
}

void Lane::end(Flight& flight, ErrorCode code, Effect effect, const char* why) {
  if (flight.ended) return;
  flight.ended = true;
  Event& event = inbox_.add(code == ErrorCode::ok ? EventKind::done : EventKind::failed);
  event.token = flight.command.slice.token;
  event.link = link_;
  const Op op = flight.command.slice.op;
  if (code != ErrorCode::ok)
    event.status = Status(code, why).with_effect(effect);
  else if (op == Op::fetch_add || op == Op::compare_swap)
    std::memcpy(&event.value, memory_.result(static_cast<std::size_t>(&flight - flights_.data())), sizeof event.value);
}

// Frees flights that have ended and whose requests have completed, in order.
void Lane::pop_ended() {
  while (oldest_ != building_ && at(oldest_).ended && at(oldest_).last <= window_.completed()) {
    Flight& flight = at(oldest_++);
    if (flight.out != kNoBuffer) free_out_[free_outs_++] = flight.out;
  }
}

void Lane::cancel(SliceToken token) {
  for (std::uint64_t i = building_; i != newest_; ++i) {
    Flight& flight = at(i);
    if (flight.ended || flight.command.slice.token != token) continue;
    const Op op = flight.command.slice.op;
    if (op == Op::message || op == Op::write_immediate) credits_.give_back();
    flight.cancelled = true;  // the rest of it is not sent
    if (flight.first == 0) end(flight, ErrorCode::cancelled, Effect::not_applied, "cancelled before it was sent");
    return;
  }
}

bool Lane::stop_memory(std::uint64_t local_handle) {
  bool free = true;
  for (std::uint64_t i = oldest_; i != newest_; ++i) {
    Flight& flight = at(i);
    if (flight.command.slice.op == Op::message || flight.command.slice.local_handle != local_handle) continue;
    if (i >= building_) cancel(flight.command.slice.token);
    free = free && std::min(flight.last, rung_) <= returned_ && (flight.ended || broken_);
  }
  return free;
}

[[gnu::noinline]] void Lane::fail(Status why) {
  if (broken_ || closed_) return;
  broken_ = true;
  inbox_.add(EventKind::link_down, link_, std::move(why));
}

// In the error state the NIC starts nothing new and flushes what it had; the completions include the last immediates.
void Lane::close(Clock& clock) {
  if (closed_) return;
  const bool flushes = pair_->to_error();
  broken_ = closed_ = true;
  const Time begin = clock.now();
  const Time give_up = flushes ? port_.drain_deadline(begin) : begin;
  std::array<abi::WorkCompletion, 16> some;
  while (receives_out_ > 0 || returned_ < rung_) {
    const int count = pair_->poll(some);
    for (int i = 0; i < count; ++i) take(some[static_cast<std::size_t>(i)]);
    if (count > 0) continue;
    const Time now = clock.now();
    if (count == 0 && now < give_up) continue;
    if (give_up != begin) port_.drained_nothing(now);
    break;
  }
  stop();
  for (std::uint64_t i = oldest_; i != newest_; ++i) {
    Flight& flight = at(i);
    const bool harmless =
        flight.first == 0 || flight.first > std::min(refused_, rung_) || flight.command.slice.op == Op::read;
    end(flight, ErrorCode::link_failed, harmless ? Effect::not_applied : Effect::unknown,
        "the link broke before the peer's NIC acknowledged it");
  }
}

// Moving the queue pair to RESET, or destroying it, ends all access for certain. Destroying may wait for outgoing
// packets (soft-RoCE: 3 s if the neighbour does not answer), so no fence waits for that.
void Lane::stop() {
  closed_ = broken_ = true;
  if (std::exchange(stopped_, true) || pair_->to_reset()) return;
  not_stopped_ = port_.not_ended("ibv_destroy_qp", pair_->destroy());
}

// What becomes of a slice within post(): the transport's part and the lane's lie here together, so that a compiler
// makes one function of both.

namespace {

constexpr bool is_plain(const Slice& slice) {
  return slice.shape == Shape::contiguous && slice.local_handle != 0 &&
         (slice.op == Op::write || slice.op == Op::read || slice.op == Op::write_immediate);
}

}  // namespace

Command* Lane::place(Op op) {
  const bool received = op == Op::message || op == Op::write_immediate;  // uses a credit
  if (broken_ || newest_ - oldest_ == kQueueDepth) return nullptr;
  if ((received && credits_.left() == 0) || (by_message(op) && free_outs_ == 0)) return nullptr;
  return &at(newest_).command;
}

void Lane::post(const Registration* local, const Key* remote) {
  Flight& flight = at(newest_++);
  const Slice& slice = flight.command.slice;
  const bool message = slice.op == Op::message, as_message = by_message(slice.op);
  flight.ended = flight.cancelled = false;
  flight.wrong = ErrorCode::ok;
  flight.first = flight.last = 0;
  flight.cursor = {};
  flight.remote = remote == nullptr ? Key() : *remote;
  const auto& lkeys = slice.op == Op::read ? &Registration::read_lkeys : &Registration::lkeys;
  flight.lkey = local == nullptr ? 0 : (local->*lkeys)[port_.index()];
  flight.gpu = local == nullptr ? nullptr : local->gpu;
  if (message || slice.op == Op::write_immediate) credits_.take();
  flight.out = as_message ? free_out_[--free_outs_] : kNoBuffer;
  if (message) {
    if (slice.length != 0) std::memcpy(memory_.out(flight.out) + header_bytes(), slice.local, slice.length);
    add(inbox_.copied_bytes, slice.length);
  }
}

// Each lane with new slices is flushed once, at the end, since the slices of a stripe alternate between lanes.
[[gnu::flatten]] std::size_t VerbsTransport::post(std::span<const Slice> slices) {
  const std::size_t taken = post_each(slices, [this](const Link& link, const Slice& slice) -> std::optional<ErrorCode> {
    End& end = ends_[link.id.slot];
    Command* const command = end.lane->place(slice.op);
    if (command == nullptr) return std::nullopt;
    const Registration* local = nullptr;
    const Key* remote = nullptr;
    const ErrorCode code = is_plain(slice) ? check_plain(link, slice, *command, local, remote)
                                           : check(link, slice, *command, local, remote);
    if (code != ErrorCode::ok) return code;
    end.lane->post(local, remote);
    if (!std::exchange(end.rings, true)) ringing_.push_back(&end);
    return code;
  });
  for (End* end : ringing_) {
    end->rings = false;
    end->lane->flush();
  }
  ringing_.clear();
  return taken;
}

// Checks bounds and permissions of the remote side too, since the peer's NIC would end the queue pair on a violation.
// Only the peer knows whether the region is still registered.
[[gnu::noinline]] ErrorCode VerbsTransport::check(const Link& link, const Slice& slice, Command& out,
                                                  const Registration*& local, const Key*& remote) {
  Import* import = nullptr;
  const ErrorCode code = prepare(link, slice, out, &import);
  if (code != ErrorCode::ok || slice.op == Op::message) return code;
  const Remote& far = import->extra;
  remote = far.at(link.peer_device);
  if (remote == nullptr) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (slice.op == Op::fetch_add || slice.op == Op::compare_swap) {
    if (slice.remote_offset > far.size_bytes || far.size_bytes - slice.remote_offset < 8)
      return ErrorCode::out_of_range;
    return (remote->address + slice.remote_offset) % 8 == 0 ? ErrorCode::ok : ErrorCode::invalid_argument;
  }
  if (const ErrorCode blocks = check_blocks(out, far.size_bytes, kMaxBlocks, kMaxSliceBytes); blocks != ErrorCode::ok)
    return blocks;
  if (out.local_begin == nullptr) return ErrorCode::ok;
  local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  return slice.op == Op::read && !local->writable ? ErrorCode::access_denied : ErrorCode::ok;
}

// The same, in the same order, for what most slices are: one block of a region. What the region's table says of it was
// kept when it was registered, and holds while its generation is live.
ErrorCode VerbsTransport::check_plain(const Link& link, const Slice& slice, Command& out, const Registration*& local,
                                      const Key*& remote) {
  const Capabilities& can = devices_[link.device].capabilities;
  if ((can.operations & static_cast<Bits>(slice.op)) == 0) return ErrorCode::unsupported;
  const Import* const import = imports_.find(slice.remote_handle, link.peer);
  if (import == nullptr) return ErrorCode::not_found;
  if (slice.length > can.max_slice_bytes) return ErrorCode::invalid_argument;
  local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  const Region& memory = local->memory;
  if (!regions_.slot_of(memory.id).is_live(memory.id.generation)) return ErrorCode::revoked;
  const auto from = static_cast<std::uint64_t>(slice.local - memory.address);  // huge if it lies before
  if (from > memory.size_bytes) return ErrorCode::out_of_range;
  const Remote& far = import->extra;
  remote = far.at(link.peer_device);
  if (remote == nullptr) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (slice.remote_offset > far.size_bytes || slice.length > far.size_bytes - slice.remote_offset ||
      slice.length > memory.size_bytes - from)
    return ErrorCode::out_of_range;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  if (slice.op == Op::read && !local->writable) return ErrorCode::access_denied;
  // By fields, those of other shapes left out: compilers copy a whole Slice byte by byte.
  Slice& mine = out.slice;
  mine.op = slice.op;
  mine.shape = Shape::contiguous;
  mine.token = slice.token;
  mine.local = slice.local;
  mine.local_handle = slice.local_handle;
  mine.remote_offset = slice.remote_offset;
  mine.length = slice.length;
  mine.immediate = slice.immediate;
  mine.count = 1;
  out.region = import->region;
  out.local_begin = memory.address;
  out.local_size = memory.size_bytes;
  out.local_kind = memory.kind;
  return ErrorCode::ok;
}

}  // namespace fairway::transport::verbs

#include <array>
#include <cstddef>
#include <vector>

#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

// Arrays of these are read in place, without a copy.
static_assert(sizeof(fairway_extent) == sizeof(Extent) &&
              offsetof(fairway_extent, remote) == offsetof(Extent, remote) &&
              offsetof(fairway_slice, length) == offsetof(Slice, length));
static_assert(sizeof(fairway_transfer) == sizeof(TransferId) &&
              offsetof(fairway_transfer, generation) == offsetof(TransferId, generation));
static_assert(sizeof(fairway_notification) == sizeof(Notification) &&
              offsetof(fairway_notification, message) == offsetof(Notification, message));

namespace {

Extent extent_of(const fairway_extent& in) {
  return {{id<RegionId>(in.local.region), in.local.offset, in.local.length},
          {id<RemoteRegionId>(in.remote.region), in.remote.offset}};
}
RemoteAddress place_of(const fairway_remote_address& in) {
  return {id<RemoteRegionId>(in.region), in.offset};
}

// A receive's peer is where an atomic's old value is: the struct keeps its size.
constexpr std::uint64_t word_of(PeerId peer) {
  return std::uint64_t{peer.generation} << 32 | peer.slot;
}

fairway_completion completion_of(const Completion& done, void* user_data) {
  return {id<fairway_transfer>(done.id),
          static_cast<fairway_code>(done.status.code()),
          make_error(done.status),
          done.bytes,
          done.peer ? word_of(done.peer) : done.old_value,
          user_data};
}

// The caller's callback and its data, from submission until the callback ran.
struct Callback {
  fairway_callback call;
  void* user_data;
};

void run_callback(const Completion& done, void* held) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(held));
  const fairway_completion completion = completion_of(done, callback->user_data);
  callback->call(&completion, callback->user_data);
  delete completion.error;
}

Status read_layout(const fairway_request& in, Layout& out) {
  switch (in.layout) {
    case FAIRWAY_EXTENT: out = extent_of(in.extent); return {};
    case FAIRWAY_EXTENTS:
      if (in.extents == nullptr && in.extent_count != 0) break;
      out = std::span(reinterpret_cast<const Extent*>(in.extents), in.extent_count);
      return {};
    case FAIRWAY_STRIDED: out = Strided{extent_of(in.extent), in.local_stride, in.remote_stride, in.count}; return {};
    case FAIRWAY_PAGED:
      if ((in.local_index == nullptr || in.remote_index == nullptr) && in.pages != 0) break;
      out = Paged{id<RegionId>(in.extent.local.region),
                  id<RemoteRegionId>(in.extent.remote.region),
                  in.page_bytes,
                  in.local_unit,
                  in.remote_unit,
                  {in.local_index, in.pages},
                  {in.remote_index, in.pages}};
      return {};
    default: return {ErrorCode::invalid_argument, "a request's layout has no value " + std::to_string(in.layout)};
  }
  return {ErrorCode::invalid_argument, "a request has a count but the array it counts is null"};
}

template <class Poll>
std::size_t poll_some(fairway_engine* engine, fairway_completion* completions, std::size_t count, const Poll& poll) {
  if (engine == nullptr || (completions == nullptr && count != 0)) return 0;
  std::array<Completion, 32> done;
  std::size_t stored = 0;
  for (;;) {
    const std::size_t found = poll(engine->engine, std::span(done).first(std::min(done.size(), count - stored)));
    for (std::size_t i = 0; i < found; ++i) completions[stored++] = completion_of(done[i], done[i].user_data);
    if (found < done.size() || stored == count) return stored;
  }
}

CounterSpaceId space_of(const fairway_counters& in) {
  return {in.slot, in.generation};
}

bool is_value(std::int32_t value, std::int32_t last) {
  return value >= 0 && value <= last;
}

}  // namespace

namespace fairway::c {

Status read_request(const fairway_request& in, Request& out) {
  if (!is_value(in.operation, FAIRWAY_COMPARE_SWAP) || !is_value(in.notify, FAIRWAY_NOTIFY_SIGNAL) ||
      !is_value(in.priority, FAIRWAY_URGENT) || !is_value(in.deliver, FAIRWAY_TO_CALLBACK))
    return {ErrorCode::invalid_argument, "a request's operation, notify, priority or deliver has no such value"};
  if (in.message == nullptr && in.message_bytes != 0)
    return {ErrorCode::invalid_argument, "a request has message_bytes but its message is null"};
  if (Status status = read_layout(in, out.layout); !status) return status;
  out.operation = static_cast<Operation>(in.operation);
  out.peer = id<PeerId>(in.peer);
  out.target = place_of(in.target);
  out.operand = in.operand;
  out.expected = in.expected;
  out.tag = in.tag;
  RequestOptions& options = out.options;
  options.notify = {static_cast<NotifyKind>(in.notify),
                    in.immediate,
                    std::as_bytes(std::span(in.message, in.message_bytes)),
                    place_of(in.signal),
                    in.signal_value,
                    in.signal_add != 0};
  options.after = id<TransferId>(in.after);
  options.deadline = Timeout(in.deadline_us);
  options.checksum = in.checksum != 0;
  options.local_completion = in.local_completion != 0;
  options.start_after = in.start_after;
  options.priority = static_cast<Priority>(in.priority);
  options.deliver = static_cast<Deliver>(in.deliver);
  options.user_data = in.user_data;
  options.queue = id<QueueId>(in.queue);
  return {};
}

}  // namespace fairway::c

extern "C" {

FAIRWAY_API void fairway_request_init(fairway_request* out) {
  const RequestOptions defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->count = 1;
  out->priority = static_cast<int32_t>(defaults.priority);
  out->deadline_us = FAIRWAY_NO_DEADLINE;
}

FAIRWAY_API fairway_code fairway_submit(fairway_engine* engine, const fairway_request* requests, size_t count,
                                        fairway_transfer* ids, size_t* taken, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        *taken = 0;
        if (count == 0) return {};
        const std::size_t size = requests->struct_size;
        const auto* next = reinterpret_cast<const unsigned char*>(requests);
        for (std::size_t i = 0; i < count; ++i, next += size) {
          fairway_request in;
          fairway_request_init(&in);
          const auto* given = reinterpret_cast<const fairway_request*>(next);
          if (given->struct_size != size)
            return {ErrorCode::invalid_argument, "the requests of one call have different struct_size"};
          if (Status status = read_struct(given, in, kFirstRequest); !status) return status;
          Request request;
          if (Status status = read_request(in, request); !status) return status;
          std::unique_ptr<Callback> callback;
          if (request.options.deliver == Deliver::to_callback) {
            if (in.callback == nullptr) return {ErrorCode::invalid_argument, "FAIRWAY_TO_CALLBACK without a callback"};
            callback.reset(new Callback{in.callback, in.user_data});
            request.options.callback = run_callback;
            request.options.user_data = callback.get();
          }
          TransferId transfer;
          const Submitted submitted = on.submit({&request, 1}, {&transfer, 1});
          if (submitted.taken == 0) return submitted.status;
          (void)callback.release();  // run_callback owns it now
          ids[(*taken)++] = id<fairway_transfer>(transfer);
        }
        return {};
      },
      requests, ids, taken);
}
FAIRWAY_API int32_t fairway_writable(fairway_engine* engine) {
  return engine != nullptr && engine->engine.writable() ? 1 : 0;
}

FAIRWAY_API fairway_peer fairway_completion_peer(const fairway_completion* completion) {
  if (completion == nullptr) return {};
  return {static_cast<std::uint32_t>(completion->old_value), static_cast<std::uint32_t>(completion->old_value >> 32)};
}

FAIRWAY_API fairway_code fairway_probe(fairway_engine* engine, fairway_peer peer, uint64_t tag, int64_t timeout_us,
                                       fairway_peer* from, uint64_t* size_bytes, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        const auto found = on.probe(id<PeerId>(peer), tag, timeout_of(timeout_us));
        if (found) {
          *from = id<fairway_peer>(found->peer);
          *size_bytes = found->size_bytes;
        }
        return found.status();
      },
      from, size_bytes);
}
FAIRWAY_API fairway_code fairway_wait(fairway_engine* engine, fairway_transfer transfer, int64_t timeout_us,
                                      fairway_completion* completion, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        auto done = on.wait(id<TransferId>(transfer), timeout_of(timeout_us));
        if (done) *completion = completion_of(*done, done->user_data);
        return done.status();
      },
      completion);
}
FAIRWAY_API fairway_code fairway_wait_any(fairway_engine* engine, const fairway_transfer* ids, size_t count,
                                          int64_t timeout_us, fairway_completion* completion, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        auto done = on.wait_any({reinterpret_cast<const TransferId*>(ids), count}, timeout_of(timeout_us));
        if (done) *completion = completion_of(*done, done->user_data);
        return done.status();
      },
      ids, completion);
}
FAIRWAY_API fairway_code fairway_wait_all(fairway_engine* engine, const fairway_transfer* ids, size_t count,
                                          int64_t timeout_us, fairway_completion* completions, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        std::vector<Completion> done(count);
        Status status = on.wait_all({reinterpret_cast<const TransferId*>(ids), count}, done, timeout_of(timeout_us));
        if (status || status.code() == ErrorCode::not_found)
          for (size_t i = 0; i < count; ++i) completions[i] = completion_of(done[i], done[i].user_data);
        return status;
      },
      ids, completions);
}
FAIRWAY_API fairway_code fairway_flush(fairway_engine* engine, fairway_peer peer, int64_t timeout_us,
                                       fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.flush(id<PeerId>(peer), timeout_of(timeout_us)); });
}
FAIRWAY_API fairway_code fairway_drain(fairway_engine* engine, int64_t timeout_us, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.drain(timeout_of(timeout_us)); });
}
FAIRWAY_API size_t fairway_poll(fairway_engine* engine, fairway_completion* completions, size_t count) {
  return poll_some(engine, completions, count, [](Engine& on, std::span<Completion> some) { return on.poll(some); });
}
FAIRWAY_API fairway_code fairway_make_queue(fairway_engine* engine, uint32_t capacity, fairway_queue* out,
                                            fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) {
        const auto made = on.make_queue(capacity);
        if (made) *out = id<fairway_queue>(*made);
        return made.status();
      },
      out);
}
FAIRWAY_API fairway_code fairway_end_queue(fairway_engine* engine, fairway_queue queue, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.end_queue(id<QueueId>(queue)); });
}
FAIRWAY_API size_t fairway_poll_queue(fairway_engine* engine, fairway_queue queue, fairway_completion* completions,
                                      size_t count) {
  return poll_some(engine, completions, count,
                   [queue](Engine& on, std::span<Completion> some) { return on.poll(id<QueueId>(queue), some); });
}
FAIRWAY_API fairway_code fairway_wait_queue(fairway_engine* engine, fairway_queue queue, int64_t timeout_us,
                                            fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.wait(id<QueueId>(queue), timeout_of(timeout_us)); });
}
FAIRWAY_API int fairway_fd(fairway_engine* engine) {
  return engine == nullptr ? -1 : engine->engine.fd();
}
FAIRWAY_API fairway_code fairway_cancel(fairway_engine* engine, fairway_transfer transfer, int64_t timeout_us,
                                        fairway_cancelled* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        if (Status status = check_size(out->struct_size, sizeof *out, sizeof *out); !status) return status;
        auto cancelled = on.cancel(id<TransferId>(transfer), timeout_of(timeout_us));
        if (!cancelled) return cancelled.status();
        return write_struct<fairway_cancelled>(
            {0, cancelled->fenced ? 1 : 0, static_cast<int32_t>(cancelled->far_side), copy_text(cancelled->held_by)},
            out);
      },
      out);
}

FAIRWAY_API size_t fairway_poll_notifications(fairway_engine* engine, fairway_notification* notes, size_t count) {
  if (engine == nullptr || (notes == nullptr && count != 0)) return 0;
  return engine->engine.poll_notifications({reinterpret_cast<Notification*>(notes), count});
}
FAIRWAY_API fairway_code fairway_wait_notification(fairway_engine* engine, int64_t timeout_us, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.wait_notification(timeout_of(timeout_us)); });
}
FAIRWAY_API uint64_t fairway_counter(fairway_engine* engine, uint32_t immediate) {
  return engine == nullptr ? 0 : engine->engine.counter(immediate);
}
FAIRWAY_API fairway_code fairway_wait_counter(fairway_engine* engine, uint32_t immediate, uint64_t at_least,
                                              int64_t timeout_us, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.wait_counter(immediate, at_least, timeout_of(timeout_us)); });
}
FAIRWAY_API fairway_code fairway_make_counters(fairway_engine* engine, uint32_t count, int64_t first,
                                               fairway_counters* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        if (first < -1 || first > UINT32_MAX)
          return {ErrorCode::invalid_argument, "a counter space begins at an immediate of 32 bits, or at -1: any"};
        const auto made = first < 0 ? on.make_counters(count) : on.make_counters(count, static_cast<uint32_t>(first));
        if (made) *out = {made->id.slot, made->id.generation, made->first, made->count};
        return made.status();
      },
      out);
}
FAIRWAY_API fairway_code fairway_release_counters(fairway_engine* engine, const fairway_counters* space,
                                                  fairway_error** error) {
  return with(
      engine, error, [&](Engine& on) { return on.release_counters(space_of(*space)); }, space);
}
FAIRWAY_API size_t fairway_poll_counters(fairway_engine* engine, const fairway_counters* space,
                                         fairway_notification* notes, size_t count) {
  if (engine == nullptr || space == nullptr || (notes == nullptr && count != 0)) return 0;
  return engine->engine.poll_notifications(space_of(*space), {reinterpret_cast<Notification*>(notes), count});
}
FAIRWAY_API fairway_code fairway_wait_counters(fairway_engine* engine, const fairway_counters* space,
                                               int64_t timeout_us, fairway_error** error) {
  return with(
      engine, error, [&](Engine& on) { return on.wait_notification(space_of(*space), timeout_of(timeout_us)); }, space);
}

}  // extern "C"

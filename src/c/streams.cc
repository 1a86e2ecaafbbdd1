#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

namespace {

Status hand_over(const Result<Mapping>& mapping, fairway_mapping* out) {
  if (!mapping) return mapping.status();
  return write_struct<fairway_mapping>({0, mapping->id.number, mapping->address, mapping->size_bytes, mapping->gpu,
                                        static_cast<int32_t>(mapping->access), mapping->ended,
                                        static_cast<uint8_t>(mapping->atomics), copy_text(mapping->path_description)},
                                       out);
}

}  // namespace

extern "C" {

FAIRWAY_API void fairway_stream_put_init(fairway_stream_put* out) {
  const StreamPut defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->signal_offset = defaults.signal_offset;
  out->signal_value = defaults.signal_value;
  out->signal_add = defaults.signal_add;
}
FAIRWAY_API void fairway_stream_wait_init(fairway_stream_wait* out) {
  const StreamWait defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->value = defaults.value;
  out->timeout_us = static_cast<uint64_t>(defaults.timeout.count());
}

FAIRWAY_API fairway_code fairway_map_remote(fairway_engine* engine, const fairway_remote_region* given, int32_t gpu,
                                            int64_t timeout_us, fairway_mapping* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        RemoteRegion region;
        if (Status status = check_size(out->struct_size, sizeof *out, sizeof *out); !status) return status;
        if (Status status = read_remote(given, region); !status) return status;
        return hand_over(on.map(region, gpu, timeout_of(timeout_us)), out);
      },
      given, out);
}
FAIRWAY_API fairway_code fairway_map_local(fairway_engine* engine, const fairway_region* given, int32_t gpu,
                                           int64_t timeout_us, fairway_mapping* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        fairway_region in{};
        if (Status status = check_size(out->struct_size, sizeof *out, sizeof *out); !status) return status;
        if (Status status = read_struct(given, in); !status) return status;
        const Region region{id<RegionId>(in.id), static_cast<std::byte*>(in.address), in.size_bytes,
                            static_cast<MemoryKind>(in.kind), static_cast<Access>(in.access)};
        return hand_over(on.map(region, gpu, timeout_of(timeout_us)), out);
      },
      given, out);
}
FAIRWAY_API fairway_code fairway_unmap(fairway_engine* engine, uint64_t mapping, fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.unmap({mapping}); });
}
FAIRWAY_API fairway_code fairway_put(fairway_engine* engine, uint64_t mapping, const fairway_stream_put* given,
                                     void* stream, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        fairway_stream_put in;
        fairway_stream_put_init(&in);
        if (Status status = read_struct(given, in); !status) return status;
        if (in.by < 0 || in.by > FAIRWAY_PUT_COPY_ENGINE)
          return {ErrorCode::invalid_argument, "a put's `by` has no value " + std::to_string(in.by)};
        return on.stream_put({mapping},
                             {in.offset, in.from, in.length, static_cast<PutBy>(in.by), in.signal_offset,
                              in.signal_value, in.signal_add != 0},
                             stream);
      },
      given);
}
FAIRWAY_API fairway_code fairway_wait_signal(fairway_engine* engine, const fairway_stream_wait* given, void* stream,
                                             fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        fairway_stream_wait in;
        fairway_stream_wait_init(&in);
        if (Status status = read_struct(given, in); !status) return status;
        if (in.timeout_us > static_cast<std::uint64_t>(std::chrono::microseconds::max().count()))
          return {ErrorCode::invalid_argument, "a wait's timeout_us is too long"};
        return on.stream_wait_signal(
            {in.word, in.count, in.value, std::chrono::microseconds(in.timeout_us), in.outcome, {in.with}}, stream);
      },
      given);
}
FAIRWAY_API fairway_code fairway_wait_transfer(fairway_engine* engine, fairway_transfer transfer, void* stream,
                                               fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.stream_wait(id<TransferId>(transfer), stream); });
}

}  // extern "C"

#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

namespace {

Status hand_over(const Result<Region>& region, fairway_region* out) {
  if (!region) return region.status();
  return write_struct<fairway_region>({0, id<fairway_region_id>(region->id), region->address, region->size_bytes,
                                       static_cast<int32_t>(region->kind), static_cast<int32_t>(region->access)},
                                      out);
}
Status hand_over(const Result<RemoteRegion>& region, fairway_remote_region* out) {
  if (!region) return region.status();
  return write_struct<fairway_remote_region>(
      {0, id<fairway_remote_id>(region->id), id<fairway_peer>(region->peer), region->size_bytes,
       static_cast<int32_t>(region->kind), static_cast<int32_t>(region->access)},
      out);
}

Status access_of(std::int32_t bits, Access& access) {
  if (bits < 0 || bits > static_cast<std::int32_t>(Access::all))
    return {ErrorCode::invalid_argument, "access is a sum of FAIRWAY_ACCESS_ values, not " + std::to_string(bits)};
  access = static_cast<Access>(bits);
  return {};
}

Region named(fairway_region_id region) {
  Region out;
  out.id = id<RegionId>(region);
  return out;
}

// Checks the result struct before anything is registered: a region that cannot be returned would leak.
template <class T>
Status has_space(const T* out) {
  return check_size(out->struct_size, sizeof *out, sizeof *out);
}

}  // namespace

extern "C" {

FAIRWAY_API void fairway_memory_source_init(fairway_memory_source* out) {
  *out = {sizeof *out, FAIRWAY_MEMORY_HOST, -1, 0};
}

FAIRWAY_API fairway_code fairway_register(fairway_engine* engine, void* address, uint64_t size_bytes, int32_t access,
                                          const fairway_memory_source* given, fairway_region* out,
                                          fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        fairway_memory_source source;
        fairway_memory_source_init(&source);
        Access granted;
        if (Status status = has_space(out); !status) return status;
        if (Status status = read_struct(given, source); !status) return status;
        if (Status status = access_of(access, granted); !status) return status;
        if (source.kind < 0 || source.kind > FAIRWAY_MEMORY_MANAGED)
          return {ErrorCode::invalid_argument, "a memory's kind has no value " + std::to_string(source.kind)};
        return hand_over(on.register_memory(address, size_bytes, granted,
                                            {static_cast<MemoryKind>(source.kind), source.fd, source.fd_offset}),
                         out);
      },
      out);
}
FAIRWAY_API fairway_code fairway_allocate(fairway_engine* engine, uint64_t size_bytes, int32_t access,
                                          fairway_region* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        Access granted;
        if (Status status = has_space(out); !status) return status;
        if (Status status = access_of(access, granted); !status) return status;
        return hand_over(on.allocate(size_bytes, granted), out);
      },
      out);
}
FAIRWAY_API fairway_code fairway_deregister(fairway_engine* engine, fairway_region_id region, int64_t timeout_us,
                                            fairway_error** error) {
  return with(engine, error, [&](Engine& on) { return on.deregister(named(region), timeout_of(timeout_us)); });
}
FAIRWAY_API std::int32_t fairway_fence_state(fairway_engine* engine, fairway_region_id region) {
  if (engine == nullptr) return FAIRWAY_FENCE_UNKNOWN;
  return static_cast<std::int32_t>(engine->engine.fence_state(named(region)));
}
FAIRWAY_API fairway_code fairway_describe(fairway_engine* engine, fairway_region_id region, uint8_t** bytes,
                                          size_t* count, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        auto description = on.describe(named(region));
        if (!description) return description.status();
        *bytes = static_cast<uint8_t*>(std::malloc(description->size() + 1));
        if (*bytes == nullptr) throw std::bad_alloc();
        std::memcpy(*bytes, description->data(), description->size());
        *count = description->size();
        return {};
      },
      bytes, count);
}
FAIRWAY_API fairway_code fairway_import(fairway_engine* engine, fairway_peer peer, const uint8_t* bytes, size_t count,
                                        fairway_remote_region* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        if (Status status = has_space(out); !status) return status;
        return hand_over(on.import_region(id<PeerId>(peer), std::as_bytes(std::span(bytes, count))), out);
      },
      bytes, out);
}
FAIRWAY_API fairway_code fairway_release(fairway_engine* engine, const fairway_remote_region* given,
                                         fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        RemoteRegion region;
        if (Status status = read_remote(given, region); !status) return status;
        return on.release(region);
      },
      given);
}
FAIRWAY_API fairway_code fairway_publish(fairway_engine* engine, const char* name, fairway_region_id region,
                                         fairway_error** error) {
  return with(
      engine, error, [&](Engine& on) { return on.publish(name, named(region)); }, name);
}
FAIRWAY_API fairway_code fairway_lookup(fairway_engine* engine, fairway_peer peer, const char* name, int64_t timeout_us,
                                        fairway_remote_region* out, fairway_error** error) {
  return with(
      engine, error,
      [&](Engine& on) -> Status {
        if (Status status = has_space(out); !status) return status;
        return hand_over(on.lookup(id<PeerId>(peer), name, timeout_of(timeout_us)), out);
      },
      name, out);
}

}  // extern "C"

fairway::Status fairway::c::read_remote(const fairway_remote_region* given, RemoteRegion& out) {
  fairway_remote_region in{};
  if (Status status = read_struct(given, in); !status) return status;
  out = {id<RemoteRegionId>(in.id), id<PeerId>(in.peer), in.size_bytes, static_cast<MemoryKind>(in.kind),
         static_cast<Access>(in.access)};
  return {};
}

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

#pragma once

#include <deque>

#include "conformance/other_process.h"
#include "conformance/side.h"

// What two ends of a FarSide say to each other.
namespace fairway::conformance::far {

enum class Verb : std::uint8_t {
  start,
  connect,
  exchange,
  hear,  // not answered
  disconnect,
  close,
  keep,
  let_go,
  revoke,
  deregister,
  import_keys,
  release,
  post,
  fence,
  reconnect,
  cancel,
  pause,
  steps,
  asleep,
  end
};
enum class Said : std::uint8_t { answer, event, carry };

inline Parcel verb(Verb verb) {
  Parcel parcel;
  parcel.put(verb);
  return parcel;
}

inline void put_status(Parcel& parcel, const Status& status) {
  parcel.put(status.code()).put_text(status.message()).put(status.effect()).put_text(status.link());
}
inline Status take_status(Parcel& parcel) {
  const auto code = parcel.take<ErrorCode>();
  std::string message = parcel.take_text();
  const auto effect = parcel.take<Effect>();
  const std::string link = parcel.take_text();
  if (code == ErrorCode::ok) return {};
  const Status status = Status(code, std::move(message)).with_effect(effect);
  return link.empty() ? status : status.with_link(link);
}

inline void put_seen(Parcel& parcel, const Seen& seen) {
  const Event& event = seen.event;
  parcel.put(event.kind).put(event.device).put(event.token).put(event.peer).put(event.link).put(event.value);
  put_status(parcel, event.status);
  parcel.put_bytes(seen.bytes);
}
inline Seen take_seen(Parcel& parcel) {
  Seen seen;
  Event& event = seen.event;
  event.kind = parcel.take<EventKind>();
  event.device = parcel.take<transport::DeviceIndex>();
  event.token = parcel.take<transport::SliceToken>();
  event.peer = parcel.take<transport::PeerIndex>();
  event.link = parcel.take<LinkId>();
  event.value = parcel.take<std::uint64_t>();
  event.status = take_status(parcel);
  const auto bytes = parcel.take_bytes();
  seen.bytes.assign(bytes.begin(), bytes.end());
  return seen;
}

inline void put_keys(Parcel& parcel, std::span<const std::vector<std::byte>> keys) {
  parcel.put(keys.size());
  for (const auto& key : keys) parcel.put_bytes(key);
}
inline std::vector<std::vector<std::byte>> take_keys(Parcel& parcel) {
  std::vector<std::vector<std::byte>> keys(parcel.take<std::size_t>());
  for (auto& key : keys) {
    const auto bytes = parcel.take_bytes();
    key.assign(bytes.begin(), bytes.end());
  }
  return keys;
}

// A slice's memory: none, a place in the arena, or the bytes themselves where it is no such place (messages).
enum class Local : std::uint8_t { none, arena, bytes };

inline void put_slice(Parcel& parcel, const Slice& slice, const Arena& arena) {
  parcel.put(slice);  // its pointers mean nothing there and are set anew
  const Local local = slice.local == nullptr ? Local::none : arena.has(slice.local) ? Local::arena : Local::bytes;
  parcel.put(local);
  if (local == Local::arena) parcel.put(slice.local - arena.base());
  if (local == Local::bytes) parcel.put_bytes({slice.local, slice.length});
  for (const std::uint64_t* index : {slice.local_index, slice.remote_index})
    parcel.put_bytes(index == nullptr ? std::span<const std::byte>() : std::as_bytes(std::span(index, slice.count)));
}
// `kept` holds what the slice points to beside the arena.
inline Slice take_slice(Parcel& parcel, const Arena& arena, std::deque<std::vector<std::byte>>& kept) {
  const auto keep = [&](std::span<const std::byte> bytes) {
    return kept.emplace_back(bytes.begin(), bytes.end()).data();
  };
  auto slice = parcel.take<Slice>();
  const auto local = parcel.take<Local>();
  if (local == Local::arena) slice.local = arena.base() + parcel.take<std::ptrdiff_t>();
  if (local == Local::bytes) slice.local = keep(parcel.take_bytes());
  for (const std::uint64_t** index : {&slice.local_index, &slice.remote_index}) {
    const auto bytes = parcel.take_bytes();
    *index = bytes.empty() ? nullptr : reinterpret_cast<const std::uint64_t*>(keep(bytes));
  }
  return slice;
}

}  // namespace fairway::conformance::far

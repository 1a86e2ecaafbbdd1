#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "fairway/fairway.h"

#include "fairway.h"

// What the files of the C ABI share: its opaque types, how structs of other versions are read and written, and how a
// Status becomes a code and words. No exception leaves a call: the one that can come, no memory, is a code too.
struct fairway_error {
  fairway::Status status;
  std::string text;
};
struct fairway_engine {
  fairway::Engine engine;
  std::string address;
};
struct fairway_loopback {
  std::shared_ptr<fairway::Loopback> meeting_place;
};

namespace fairway::c {

fairway_error* make_error(const Status& status);  // null when ok, or without memory for the words
fairway_code answer(const Status& status, fairway_error** error);
char* copy_text(std::string_view text);  // fairway_free; throws std::bad_alloc
Timeout timeout_of(std::int64_t timeout_us);
Status read_remote(const fairway_remote_region* given, RemoteRegion& out);
// Borrows what the request points at, and its callback's own data is still the caller's.
Status read_request(const fairway_request& given, Request& out);
// "the struct fairway_x has 12 bytes ..."; ok when a struct of that size can be taken.
Status check_size(std::size_t given, std::size_t known, std::size_t first);

// Ids are the same two words on both sides.
template <class To, class From>
To id(From from) {
  return {from.slot, from.generation};
}

// A struct as its caller knows it becomes one as this version knows it; what the caller does not know stays as it is.
// `first`: the size of the first version that had it.
template <class T>
Status read_struct(const T* given, T& out, std::size_t first = sizeof(T)) {
  if (given == nullptr) return {};
  const std::size_t size = given->struct_size;
  if (Status status = check_size(size, sizeof(T), first); !status) return status;
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0) return {ErrorCode::unsupported, "a struct has members set that this version does not know"};
  std::memcpy(&out, given, size < sizeof(T) ? size : sizeof(T));
  return {};
}

// The same the other way: the caller gets the members that it knows.
template <class T>
Status write_struct(T value, T* out, std::size_t first = sizeof(T)) {
  const std::size_t size = out->struct_size;
  if (Status status = check_size(size, sizeof(T), first); !status) return status;
  value.struct_size = size;
  std::memcpy(out, &value, size < sizeof(T) ? size : sizeof(T));
  return {};
}

template <class Call>
fairway_code guarded(fairway_error** error, Call call) {
  if (error != nullptr) *error = nullptr;
  try {
    return answer(call(), error);
  } catch (const std::bad_alloc&) {
    return FAIRWAY_RESOURCE_EXHAUSTED;  // not even memory for words
  }
}

// Runs `call(engine)`, which gives a Status, unless one of the pointers is null.
template <class Call, class... Pointers>
fairway_code with(fairway_engine* engine, fairway_error** error, Call call, Pointers... needed) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr || (... || (needed == nullptr)))
      return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    return call(engine->engine);
  });
}

}  // namespace fairway::c

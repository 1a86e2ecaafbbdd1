#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "fairway/collectives.h"
#include "fairway/fairway.h"

#include "fairway.h"
#include "fairway_collectives.h"

// Shared by the files of the C ABI: its opaque types, conversion of structs of other versions, and conversion of a
// Status to a code and text. No exception leaves a call; std::bad_alloc, the only possible one, becomes a code too.
struct fairway_error {
  fairway::Status status;
  std::string text;
};
struct fairway_engine {
  std::shared_ptr<fairway::Engine> kept;
  fairway::Engine& engine;
  std::string address;
  std::atomic<unsigned> holders{1};  // its caller, and the communicators that stand on it
  std::atomic<bool> closed{false};
};
struct fairway_loopback {
  std::shared_ptr<fairway::Loopback> meeting_place;
};

namespace fairway::c {

void hold(fairway_engine* engine);
void let_go(fairway_engine* engine);  // the last one deletes it

fairway_error* make_error(const Status& status);  // null for an ok status, or when there is no memory for the text
fairway_code answer(const Status& status, fairway_error** error);
char* copy_text(std::string_view text);  // free with fairway_free; throws std::bad_alloc
Timeout timeout_of(std::int64_t timeout_us);
// A handle of an engine, which its caller holds.
fairway_engine* make_handle(std::shared_ptr<Engine> engine);
// Null: out keeps its defaults.
Status read_engine_options(const fairway_options* given, EngineOptions& out);
Status read_remote(const fairway_remote_region* given, RemoteRegion& out);
// The size of a request in the first version, which had no queue.
inline constexpr std::size_t kFirstRequest = offsetof(fairway_request, queue);
// Of the options in the first version.
inline constexpr std::size_t kFirstOptions = offsetof(fairway_options, keep_links_awake);
// Converts a request. `out` borrows what `given` points at. The caller still owns the data of its callback.
Status read_request(const fairway_request& given, Request& out);
// Ok when a struct of that size can be converted; otherwise "the struct fairway_x has 12 bytes ...".
Status check_size(std::size_t given, std::size_t known, std::size_t first);

// Converts an id: the same two words in C and in C++.
template <class To, class From>
To id(From from) {
  return {from.slot, from.generation};
}

// Reads a struct of the caller's version into this version's. Members that the caller's version lacks keep their value.
// `first` is the size of the struct in the first version that had it.
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

// Writes a struct for the caller: it gets the members that its version has.
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
    return FAIRWAY_RESOURCE_EXHAUSTED;  // not even memory for the text
  }
}

// Runs `call(engine)`, which returns a Status, unless one of the pointers is null.
template <class Call, class... Pointers>
fairway_code with(fairway_engine* engine, fairway_error** error, Call call, Pointers... needed) {
  return guarded(error, [&]() -> Status {
    if (engine == nullptr || (... || (needed == nullptr)))
      return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    return call(engine->engine);
  });
}

}  // namespace fairway::c

// What the C ABI's calls of collectives share. A communicator holds its engine: whichever is freed last releases it.
struct fairway_communicator {
  fairway::Communicator communicator;
  fairway_engine* engine;
};

namespace fairway::c {

// Converts a call of the caller's version, which is not null. `out` borrows what it points at, and its blocks have
// `size` elements.
std::optional<Timeout> own_timeout_of(std::int64_t timeout_us);  // FAIRWAY_OWN_TIMEOUT: none
Status read_collective(const fairway_collective* caller, int size, Collective& out);
Status read_communicator_options(const fairway_communicator_options* given, CommunicatorOptions& out);
Status read_addresses(const char* const* addresses, std::size_t count, std::vector<std::string>& out);
Status hand_over(Result<Communicator> made, fairway_engine* engine, fairway_communicator** out);

// A copy of a text for the caller, or why there is none.
inline Status give_text(const Result<std::string>& made, char** text) {
  if (made) *text = copy_text(*made);
  return made.status();
}

// Runs `call(communicator)`, which returns a Status, unless one of the pointers is null.
template <class Call, class... Pointers>
fairway_code with_group(const fairway_communicator* communicator, fairway_error** error, Call call,
                        Pointers... needed) {
  return guarded(error, [&]() -> Status {
    if (communicator == nullptr || (... || (needed == nullptr)))
      return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    // A communicator's memory is the engine's.
    if (communicator->engine->closed) return {ErrorCode::closed, "the communicator's engine is closed"};
    return call(const_cast<fairway_communicator*>(communicator)->communicator);
  });
}

// The same with one collective of the caller: `run(communicator, collective)`.
template <class Run, class... Pointers>
fairway_code with_collective(const fairway_communicator* communicator, const fairway_collective* given,
                             fairway_error** error, Run run, Pointers... needed) {
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        Collective call;
        if (Status status = read_collective(given, group.size(), call); !status) return status;
        return run(group, call);
      },
      given, needed...);
}

}  // namespace fairway::c

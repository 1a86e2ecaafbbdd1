#pragma once

#include "fairway/collectives.h"

#include "c/abi.h"
#include "fairway_collectives.h"

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

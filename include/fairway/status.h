#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "fairway/export.h"

namespace fairway {

// What went wrong, as a code that a program can act on; Status::message() says it in words.
enum class ErrorCode : std::uint8_t {
  ok = 0,
  invalid_argument,       // the caller's request is malformed: change it
  not_found,              // no such peer, region, name, file
  already_exists,         // the name is taken
  access_denied,          // the region was not registered with that permission
  out_of_range,           // beyond the end of a region, a file, a limit
  unsupported,            // no route or transport can do this; the message says what would
  queue_full,             // not accepted, nothing was done: try again once writable() says so
  resource_exhausted,     // descriptors, memory, ports: the message names the limit
  unreachable,            // nothing answers at that address
  peer_dead,              // the peer's process ended or stopped answering within the bound
  stale_incarnation,      // the handle belongs to an earlier run of that peer: connect again
  link_failed,            // the link broke and no other one could take over
  cancelled,              // by cancel() or close()
  deadline_exceeded,      // the request's own deadline passed
  timed_out,              // this wait's timeout passed; what was waited for goes on
  dependency_failed,      // the transfer named in `after` failed
  truncated,              // a message longer than the posted receive
  checksum_mismatch,      // the end-to-end checksum found different bytes
  not_fenced,             // bytes may still land: do not reuse the memory
  revoked,                // the region was deregistered
  authentication_failed,  // the peer could not prove that it knows the job's key
  version_mismatch,       // no version of the wire format that both sides speak
  protocol_error,         // the peer sent something malformed; its connection was closed
  closed,                 // the engine or connection is closed
  system_error,           // the operating system refused; the message has its own text
};

// What a failed transfer did at its target.
enum class Effect : std::uint8_t {
  not_applied,  // no byte was written
  partial,      // some bytes may have been written; no more will be
  unknown,      // cannot be known
};

FAIRWAY_API std::string_view to_string(ErrorCode code);
FAIRWAY_API std::string_view to_string(Effect effect);

// The outcome of an operation: ok, or an error with its code, its cause in words, and the peer and link it concerns.
// A value; copying shares the text. An ok Status holds no memory.
class FAIRWAY_API [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message);

  static Status ok() { return {}; }

  [[nodiscard]] bool is_ok() const { return detail_ == nullptr; }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] ErrorCode code() const;
  [[nodiscard]] const std::string& message() const;  // the cause; empty when ok
  [[nodiscard]] const std::string& peer() const;     // the peer's name or address; empty when none is concerned
  [[nodiscard]] const std::string& link() const;     // e.g. "tcp/eth0/1"; empty when none is concerned
  [[nodiscard]] Effect effect() const;               // of a failed transfer on its target

  // Copies of this status with one more fact. On an ok status they change nothing.
  [[nodiscard]] Status with_peer(std::string peer) const;
  [[nodiscard]] Status with_link(std::string link) const;
  [[nodiscard]] Status with_effect(Effect effect) const;
  [[nodiscard]] Status with_context(std::string_view context) const;  // "context: message"

  // "peer_dead: decode-3 (10.0.0.7:4000) over tcp/eth0: connection reset by peer"
  [[nodiscard]] std::string to_string() const;

 private:
  struct Detail;
  std::shared_ptr<const Detail> detail_;
};

// Throws std::logic_error, whose what() has the status.
[[noreturn]] FAIRWAY_API void throw_failed_result_used(const Status& status);

// A T or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}       // NOLINT(google-explicit-constructor)
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_ok() const { return state_.index() == 0; }
  explicit operator bool() const { return is_ok(); }
  [[nodiscard]] Status status() const { return is_ok() ? Status::ok() : std::get<1>(state_); }

  // The value. On a failed Result, which is a mistake of the program: throws std::logic_error.
  T& value() & { return *checked(&state_); }
  const T& value() const& { return *checked(&state_); }
  T&& value() && { return std::move(*checked(&state_)); }
  T* operator->() { return checked(&state_); }
  const T* operator->() const { return checked(&state_); }
  T& operator*() & { return *checked(&state_); }
  const T& operator*() const& { return *checked(&state_); }
  T&& operator*() && { return std::move(*checked(&state_)); }

 private:
  template <class State>
  static auto checked(State* state) {
    if (state->index() != 0) throw_failed_result_used(std::get<1>(*state));
    return std::get_if<0>(state);
  }

  std::variant<T, Status> state_;
};

}  // namespace fairway

#include "control/mailbox.h"

#include <algorithm>

#include <fmt/format.h>

#include "control/outbox.h"

namespace fairway::control {
namespace {

constexpr std::size_t kLeastCommands = 1024;
// An engine that tells all its peers something does so in one step, in which the control thread may not run: with less
// than a place for each, sessions would end for it. Twice that, since others call meanwhile.
constexpr std::size_t kCommandsOfASession = 2;

constexpr std::uint32_t generation_of(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

Status gone() {
  return {ErrorCode::not_found, "that session is down or never existed"};
}

}  // namespace

Mailbox::Mailbox(std::uint32_t max_sessions, std::uint32_t max_queued_bytes)
    : max_sessions_(max_sessions),
      max_queued_bytes_(max_queued_bytes),
      max_commands_(std::max(kLeastCommands, kCommandsOfASession * max_sessions)),
      gates_(std::make_unique<Gate[]>(max_sessions)),
      commands_(max_commands_) {}

Status Mailbox::post(Command command) {
  if (commands_.push(std::move(command))) return {};
  return {ErrorCode::queue_full,
          fmt::format("the control thread's queue is full ({} commands): try again later", max_commands_)};
}

Mailbox::Gate* Mailbox::gate_of(SessionId session) {
  const std::uint32_t slot = slot_of(session);
  return generation_of(session) != 0 && slot < max_sessions_ ? &gates_[slot] : nullptr;
}

Status Mailbox::send(SessionId session, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessage)
    return {ErrorCode::out_of_range,
            fmt::format("a message of {} bytes is too long: the limit is {}", bytes.size(), kMaxMessage)};
  Gate* gate = gate_of(session);
  if (!gate) return gone();
  const auto size = static_cast<std::uint32_t>(bytes.size()) + kMessageOverhead;
  // One word holds generation and count, so that bytes are never counted on the slot's next session.
  std::uint64_t state = gate->state.load(std::memory_order_seq_cst);
  do {
    if (generation_of(state) != generation_of(session)) return gone();
    if (static_cast<std::uint32_t>(state) + std::uint64_t{size} > max_queued_bytes_) {
      // A release between the load above and this store would notify nobody, so load again. Both sides are sequentially
      // consistent: release() changes the count and then loads `full`.
      gate->full.store(true, std::memory_order_seq_cst);
      state = gate->state.load(std::memory_order_seq_cst);
      if (generation_of(state) != generation_of(session)) return gone();
      if (static_cast<std::uint32_t>(state) + std::uint64_t{size} > max_queued_bytes_)
        return {ErrorCode::queue_full, fmt::format("{} bytes of messages are not acknowledged yet", max_queued_bytes_)};
    }
  } while (!gate->state.compare_exchange_weak(state, state + size, std::memory_order_seq_cst));
  Command command;
  command.kind = Command::Kind::send;
  command.id = session;
  command.bytes.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Status status = post(std::move(command));
  if (status) return status;
  release(session, size);
  gate->full.store(true, std::memory_order_seq_cst);
  overflow_.store(true, std::memory_order_release);
  return status;
}

void Mailbox::disconnect(SessionId session, const Status& why) {
  Gate* gate = gate_of(session);
  if (!gate || generation_of(gate->state.load(std::memory_order_acquire)) != generation_of(session)) return;
  if (!why) {  // queued before the flag, so the control thread finds it first; when the queue is full the session ends
               // without a reason
    Command words;
    words.kind = Command::Kind::disconnect_reason;
    words.id = session;
    words.bytes = why.message();
    words.code = why.code();
    static_cast<void>(post(std::move(words)));
  }
  gate->disconnect.store(generation_of(session), std::memory_order_release);
  disconnects_.store(true, std::memory_order_release);
}

SessionId Mailbox::open(std::uint32_t slot) {
  if (++generation_ == 0) ++generation_;
  Gate& gate = gates_[slot];
  gate.full.store(false, std::memory_order_relaxed);
  gate.disconnect.store(0, std::memory_order_relaxed);
  const std::uint64_t high = std::uint64_t{generation_} << 32;
  gate.state.store(high, std::memory_order_release);
  return high | slot;
}

void Mailbox::shut(std::uint32_t slot) {
  gates_[slot].state.store(0, std::memory_order_release);
}

bool Mailbox::release(SessionId session, std::uint64_t bytes) {
  Gate& gate = gates_[slot_of(session)];
  std::uint64_t state = gate.state.load(std::memory_order_seq_cst);
  do {
    if (generation_of(state) != generation_of(session)) return false;
  } while (!gate.state.compare_exchange_weak(state, state - bytes, std::memory_order_seq_cst));
  return freed(session);
}

bool Mailbox::freed(SessionId session) {
  Gate& gate = gates_[slot_of(session)];
  const std::uint64_t state = gate.state.load(std::memory_order_seq_cst);
  if (generation_of(state) != generation_of(session) || static_cast<std::uint32_t>(state) > max_queued_bytes_ / 2)
    return false;
  return gate.full.load(std::memory_order_seq_cst) && gate.full.exchange(false, std::memory_order_acq_rel);
}

bool Mailbox::wants_disconnect(SessionId session) const {
  return gates_[slot_of(session)].disconnect.load(std::memory_order_acquire) == generation_of(session);
}

}  // namespace fairway::control

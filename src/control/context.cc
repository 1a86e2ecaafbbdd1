#include "control/context.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/bytes.h"

namespace fairway::control {

std::optional<Outbox::Next> Outbox::next() const {
  if (written_ == count()) return std::nullopt;
  return Next{first_ + written_, (*messages_)[written_]};
}

Result<std::uint64_t> Outbox::acknowledge(std::uint64_t sequence) {
  // Only a written message can be acknowledged. An acknowledgement may repeat an earlier number.
  if (sequence >= first_ + written_)
    return Status(ErrorCode::protocol_error, fmt::format("the peer acknowledged message {} of {} that were sent",
                                                         sequence, first_ + written_ - 1));
  std::uint64_t freed = 0;
  while (first_ <= sequence) {
    freed += messages_->front().size() + kMessageOverhead;
    messages_->pop_front();
    ++first_;
    --written_;
  }
  if (empty()) messages_.reset();
  return freed;
}

Result<std::uint64_t> Outbox::resume(std::uint64_t sequence) {
  if (sequence + 1 < first_)
    return Status(
        ErrorCode::protocol_error,
        fmt::format("the peer resumed at message {} after it had acknowledged message {}", sequence, first_ - 1));
  written_ = count();
  auto freed = acknowledge(sequence);
  written_ = 0;
  return freed;
}

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

namespace {

std::uint64_t random_word(Rng& rng) {
  std::array<std::byte, 8> bytes;
  rng.fill(bytes);
  return ByteReader(bytes).get<std::uint64_t>();
}

// The start time in units of 2^30 ns (1.07 s) above 33 random bits. Two incarnations of one engine differ, and so do
// thousands of engines that start together.
std::uint64_t new_incarnation(std::uint64_t unix_ns, Rng& rng) {
  constexpr int kRandomBits = 33;
  const std::uint64_t second = unix_ns >> 30;
  const std::uint64_t mask = (std::uint64_t{1} << kRandomBits) - 1;
  return (second << kRandomBits) | (random_word(rng) & mask) | 1;
}

std::string_view host_of(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

ControlContext::ControlContext(const Options& options_in, const Runtime& runtime_in, Observer& observer_in)
    : options(options_in),
      runtime(runtime_in),
      observer(observer_in),
      mailbox(options_in.max_peers, options_in.max_queued_bytes),
      wire(options_in.job_key, runtime_in.rng),
      incarnation(0),
      started_unix_ns(runtime_in.clock.unix_ns()) {
  incarnation = new_incarnation(started_unix_ns, runtime.rng);
}

Identity ControlContext::identity(Intent intent, std::uint64_t session, std::uint64_t received) {
  Identity out;
  out.incarnation = incarnation;
  out.session = session;
  out.received = received;
  out.stamp = next_stamp();
  out.timeout_ms = static_cast<std::uint32_t>(options.peer_timeout / kMillisecond);
  out.intent = intent;
  out.by_caller = options.by_caller;
  out.name = name;
  out.address = address;
  return out;
}

std::uint64_t ControlContext::random_id() {
  return random_word(runtime.rng) | 1;
}

Time ControlContext::jittered(Time delay) {
  return delay / 2 + random_word(runtime.rng) % (delay + 1);
}

std::string reachable_address(const std::string& advertised, const std::string& seen_from) {
  const auto host = host_of(advertised);
  if (host != "0.0.0.0" && host != "[::]") return advertised;
  return std::string(host_of(seen_from)) + advertised.substr(host.size());
}

bool looks_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("localhost:");
}

bool same_incarnation(const PeerInfo& known, const Identity& peer) {
  return known.incarnation == peer.incarnation && known.name == peer.name;
}

}  // namespace fairway::control

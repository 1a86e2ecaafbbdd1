#include "control/session.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::control {

Keepalive::Keepalive(Time now, Time our_timeout, Time their_timeout)
    : timeout_(std::clamp(our_timeout, kMinTimeout, kMaxTimeout)),
      interval_(std::min(timeout_, std::clamp(their_timeout, kMinTimeout, kMaxTimeout)) / 4),
      last_heard_(now) {
  beat_sent(now);
}

void Keepalive::allow_for_pause(Time now, Time late) {
  last_heard_ = std::min(now, after(last_heard_, late));
}

bool Keepalive::on_beat(const Beat& beat) {
  constexpr std::uint32_t kStuckBeats = 4;
  if (!beat.queued) {
    same_beats_ = 0;
  } else if (same_beats_ == 0 || beat.steps != steps_) {
    same_beats_ = 1;
    steps_ = beat.steps;
  } else {
    ++same_beats_;
  }
  return same_beats_ >= kStuckBeats;
}

// Heartbeats fall on multiples of the interval, so that all sessions share one wake-up.
void Keepalive::beat_sent(Time now) {
  next_beat_ = (now / interval_ + 1) * interval_;
}

namespace {

constexpr std::size_t kWriteAhead = 16384;       // limit on sealed bytes that wait for the channel
constexpr std::size_t kWritePerStep = 65536;     // per step, so that one busy session does not starve the others
constexpr std::uint64_t kAckEveryMessages = 16;  // otherwise the next message or heartbeat carries the acknowledgement
constexpr std::uint64_t kAckEveryBytes = 16384;
constexpr Time kFlap = 100 * kMillisecond;

Session::End protocol_violation(Status status) {
  return {std::move(status), Reason::protocol_error};
}

ErrorCode code_of(Reason reason) {
  switch (reason) {
    case Reason::closed: return ErrorCode::closed;
    case Reason::stale: return ErrorCode::stale_incarnation;
    case Reason::full: return ErrorCode::resource_exhausted;
    case Reason::crossed:
    case Reason::no_directory:
    case Reason::protocol_error: break;
  }
  return ErrorCode::protocol_error;
}

}  // namespace

Session::Session(ControlContext& context, SessionId id, std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive)
    : context_(context), id_(id), wire_id_(wire_id), peer_(std::move(peer)), keepalive_(keepalive) {}

std::string Session::label() const {
  return peer_.name == peer_.address ? peer_.name : fmt::format("{} ({})", peer_.name, peer_.address);
}

Status Session::attach(std::unique_ptr<Connection> connection, std::uint64_t received, std::uint64_t stamp, Time now) {
  auto freed = outbox_.resume(received);
  if (!freed) return freed.status();
  if (context_.mailbox.release(id_, freed.value())) context_.observer.session_writable(id_);
  connection_ = std::move(connection);
  connected_at_ = now;
  peer_stamp_ = stamp;
  acknowledged_ = received_;
  unacknowledged_bytes_ = 0;
  keepalive_.heard(now);
  keepalive_.restarted();
  return {};
}

std::unique_ptr<Connection> Session::detach() {
  outbox_.rewind();
  if (connection_) connection_->announce_in(nullptr, 0);
  return std::move(connection_);
}

std::optional<Session::End> Session::receive(Time now) {
  if (!connection_) return std::nullopt;
  connection_->pump();
  while (const auto frame = connection_->next()) {
    keepalive_.heard(now);
    if (auto end = on_frame(*frame, now)) return end;
  }
  connection_->drop_used();
  if (!connection_->failure()) {
    last_break_ = connection_->failure();
    flaps_ = now < after(connected_at_, kFlap) ? flaps_ + 1 : 0;
    detach();
  }
  return std::nullopt;
}

std::optional<Session::End> Session::on_frame(const Frame& frame, Time now) {
  switch (frame.type) {
    case FrameType::message: return on_message(frame);
    case FrameType::ack: {
      const auto ack = Ack::read(frame.body);
      return ack ? acknowledged(ack->ack) : protocol_violation(ack.status());
    }
    case FrameType::beat: {
      const auto beat = Beat::read(frame.body);
      if (!beat) return protocol_violation(beat.status());
      if (auto end = acknowledged(beat->ack)) return end;
      if (peer_.by_caller) context_.observer.beat(id_, beat->steps, now);
      if (!keepalive_.on_beat(beat.value())) return std::nullopt;
      return End{
          {ErrorCode::peer_dead, fmt::format("its control thread answers, but its workers have queued work and made "
                                             "no step for {} ms",
                                             3 * keepalive_.interval() / kMillisecond)},
          Reason::stale};
    }
    case FrameType::goodbye: {
      const auto goodbye = Goodbye::read(frame.body);
      if (!goodbye) return protocol_violation(goodbye.status());
      std::string text = goodbye->text;  // of a peer that ended the session: its words are of this process
      if (goodbye->reason == Reason::stale) text = "it has declared this process dead: " + text;
      return End{{code_of(goodbye->reason), std::move(text)}, std::nullopt};
    }
    default: break;
  }
  return protocol_violation({ErrorCode::protocol_error,
                             fmt::format("unexpected frame of type {} in a session", static_cast<int>(frame.type))});
}

std::optional<Session::End> Session::on_message(const Frame& frame) {
  const auto message = Message::read(frame.body);
  if (!message) return protocol_violation(message.status());
  if (auto end = acknowledged(message->ack)) return end;
  if (message->sequence != received_ + 1)
    return protocol_violation(
        {ErrorCode::protocol_error, fmt::format("message {} arrived after message {}", message->sequence, received_)});
  received_ = message->sequence;
  unacknowledged_bytes_ += message->bytes.size();
  context_.observer.message(id_, message->bytes);
  return std::nullopt;
}

std::optional<Session::End> Session::acknowledged(std::uint64_t sequence) {
  const auto freed = outbox_.acknowledge(sequence);
  if (!freed) return protocol_violation(freed.status());
  if (freed.value() != 0 && context_.mailbox.release(id_, freed.value())) context_.observer.session_writable(id_);
  return std::nullopt;
}

bool Session::transmit(Time now, const Progress* progress) {
  if (!connection_) return false;
  bool put = false;
  std::size_t written = 0;
  while (connection_->unsent() < kWriteAhead) {
    const auto next = outbox_.next();
    if (!next) break;
    if (written >= kWritePerStep) return true;
    connection_->put(
        Message{next->sequence, received_, std::as_bytes(std::span(next->bytes.data(), next->bytes.size()))});
    written += next->bytes.size() + kMessageOverhead;
    outbox_.written();
    acknowledged_ = received_;
    unacknowledged_bytes_ = 0;
    put = true;
    if (connection_->unsent() >= kWriteAhead) connection_->flush();
  }
  // Each acknowledgement and heartbeat supersedes the ones before, so skip them while the peer does not read.
  const bool may_write = connection_->unsent() < kWriteAhead;
  if (progress && keepalive_.beat_due(now)) {
    keepalive_.beat_sent(now);
    if (may_write) {
      connection_->put(Beat{received_, progress->steps, progress->queued});
      acknowledged_ = received_;
      unacknowledged_bytes_ = 0;
      put = true;
    }
  } else if (may_write && (received_ - acknowledged_ >= kAckEveryMessages || unacknowledged_bytes_ >= kAckEveryBytes)) {
    connection_->put(Ack{received_});
    acknowledged_ = received_;
    unacknowledged_bytes_ = 0;
    put = true;
  }
  if (put) connection_->flush();
  return false;
}

}  // namespace fairway::control

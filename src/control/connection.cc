#include "control/connection.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace fairway::control {
namespace {

constexpr std::size_t kProofSize = sizeof(Mac);
constexpr std::size_t kVerdictSize = 4 + sizeof(Mac);
constexpr std::size_t kReadPerPump = 65536;  // per call, so that one busy peer does not starve the others
constexpr std::size_t kKeptCapacity = 128;   // of heartbeats; a larger buffer is freed once it is empty

// First field of the listener's answer to the dialer's proof; the listener's own proof follows.
enum class ProofVerdict : std::uint8_t { accepted = 0, wrong_proof = 1 };

void release_if_large(std::vector<std::byte>& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeptCapacity) buffer.shrink_to_fit();
}

}  // namespace

Connection::Connection(Wire& wire, std::unique_ptr<Channel> channel, Role role)
    : wire_(wire), channel_(std::move(channel)), role_(role), transcript_(std::make_unique<Transcript>()) {
  Hello hello;
  hello.versions = wire_.versions;
  hello.role = role_;
  hello.keyed = wire_.key.set();
  wire_.rng.fill(hello.nonce);
  transcript_->ours = encode(hello);
  if (role_ == Role::dialer) send_hello();
}

void Connection::send_hello() {
  send_raw(transcript_->ours);
}

void Connection::send_raw(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void Connection::fail(Status status) {
  if (!failure_) return;
  flush();  // the reason may still be queued; what the channel does not take now is lost
  failure_ = status.with_peer(channel_->peer_address());
  has_unread_ = false;
}

// How many bytes to read next. Before the peer is authenticated, never more than its next handshake message.
std::size_t Connection::wanted() const {
  switch (phase_) {
    case Phase::hello: return kHelloSize - in_.size();
    case Phase::proof: return (role_ == Role::listener ? kProofSize : kVerdictSize) - in_.size();
    case Phase::open: break;
  }
  return wire_.chunk.size();
}

void Connection::pump() {
  if (!failure_) return;
  drop_used();
  if (!channel_->announced() && !has_unread_ && send_failure_.is_ok() && out_sent_ == out_.size()) return;
  flush();
  read();
  flush();
  if (!send_failure_) read();
}

void Connection::drop_used() {
  if (in_used_ == 0) return;
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(in_used_));
  in_used_ = 0;
  if (in_.empty()) release_if_large(in_);
}

void Connection::read() {
  has_unread_ = false;
  for (std::size_t total = 0; failure_.is_ok();) {
    if (total >= kReadPerPump || in_.size() >= wire_.chunk.size() + kHeaderSize + kMaxBody + kTagSize) {
      has_unread_ = true;
      return;
    }
    auto got = channel_->receive(std::span(wire_.chunk).first(std::min(wanted(), wire_.chunk.size())));
    if (!got) return fail(send_failure_ ? got.status() : send_failure_);
    if (got.value() == 0) {
      if (!send_failure_) fail(send_failure_);
      return;
    }
    total += got.value();
    const auto bytes = std::span(wire_.chunk).first(got.value());
    in_.insert(in_.end(), bytes.begin(), bytes.end());
    if (phase_ != Phase::open && wanted() == 0) advance();
  }
}

void Connection::advance() {
  const std::vector<std::byte> message = std::move(in_);
  in_.clear();
  if (phase_ == Phase::hello) return on_hello(message);
  return role_ == Role::listener ? on_proof(message) : on_verdict(message);
}

void Connection::on_hello(std::span<const std::byte> bytes) {
  const auto theirs = decode_hello(bytes, role_ == Role::dialer ? Role::listener : Role::dialer);
  if (!theirs) return fail(theirs.status());
  if (theirs->no_room)
    return fail({ErrorCode::resource_exhausted, "the peer's process is out of file descriptors: raise its ulimit -n"});
  if (role_ == Role::listener) send_hello();
  std::copy(bytes.begin(), bytes.end(), transcript_->theirs.begin());
  // Bytes 16 to 47 hold the nonce.
  if (std::memcmp(transcript_->ours.data() + 16, theirs->nonce.data(), theirs->nonce.size()) == 0)
    return fail({ErrorCode::authentication_failed, "the peer reflected this engine's own hello"});
  if (auto version = common_version(wire_.versions, theirs->versions); !version) return fail(version.status());
  if (theirs->keyed != wire_.key.set())
    return fail({ErrorCode::authentication_failed,
                 wire_.key.set()
                     ? "this engine has a job key and the peer has none: give both the same EngineOptions::job_key"
                     : "the peer has a job key and this engine has none: give both the same EngineOptions::job_key"});
  phase_ = Phase::proof;
  if (role_ == Role::listener) return;
  const auto proof = derive(kDialerProof);
  if (!proof) return fail({ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256"});
  transcript_->proof = *proof;
  send_raw(*proof);
}

void Connection::on_proof(std::span<const std::byte> bytes) {
  const auto expected = derive(kDialerProof);
  const auto ours = derive(kListenerProof, bytes);
  std::array<std::byte, kVerdictSize> verdict{};
  if (!expected || !ours || !same(*expected, bytes)) {
    verdict[0] = static_cast<std::byte>(ProofVerdict::wrong_proof);
    send_raw(verdict);
    return fail({ErrorCode::authentication_failed,
                 "the peer could not prove that it knows this job's key: set the same EngineOptions::job_key in both"});
  }
  std::copy(ours->begin(), ours->end(), verdict.begin() + 4);
  send_raw(verdict);
  if (!derive_keys()) return fail({ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256"});
}

void Connection::on_verdict(std::span<const std::byte> bytes) {
  if (bytes[0] != static_cast<std::byte>(ProofVerdict::accepted))
    return fail({ErrorCode::authentication_failed,
                 "the peer refused this engine's proof: set the same EngineOptions::job_key in both"});
  const auto expected = derive(kListenerProof, transcript_->proof);
  if (!expected || !same(*expected, bytes.subspan(4)))
    return fail({ErrorCode::authentication_failed,
                 "the peer could not prove that it knows this job's key: set the same EngineOptions::job_key in both"});
  if (!derive_keys()) return fail({ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256"});
}

std::optional<Mac> Connection::derive(std::string_view label, std::span<const std::byte> more) {
  const bool dialer = role_ == Role::dialer;
  const auto& first = dialer ? transcript_->ours : transcript_->theirs;
  const auto& second = dialer ? transcript_->theirs : transcript_->ours;
  return wire_.key.derive(label, {first, second, more});
}

bool Connection::derive_keys() {
  const auto dialer = derive(kDialerFrames);
  const auto listener = derive(kListenerFrames);
  if (!dialer || !listener) return false;
  sealer_.emplace(role_ == Role::dialer ? *dialer : *listener);
  opener_.emplace(role_ == Role::dialer ? *listener : *dialer);
  transcript_.reset();
  phase_ = Phase::open;
  return true;
}

std::optional<Frame> Connection::next() {
  if (phase_ != Phase::open) return std::nullopt;
  std::size_t used = 0;
  auto frame = opener_->open(wire_.key.hmac(), std::span(in_).subspan(in_used_), used);
  if (!frame) {
    in_used_ = in_.size();  // bytes after an invalid frame cannot be trusted
    fail(frame.status());
    return std::nullopt;
  }
  in_used_ += used;
  return frame.value();
}

void Connection::put(FrameType type, std::span<const std::byte> body) {
  if (!failure_ || !send_failure_ || phase_ != Phase::open) return;
  if (Status status = sealer_->seal(wire_.key.hmac(), type, body, out_); !status) fail(std::move(status));
}

void Connection::flush() {
  while (failure_.is_ok() && send_failure_.is_ok() && out_sent_ < out_.size()) {
    auto sent = channel_->send(std::span(out_).subspan(out_sent_));
    if (!sent) {
      // The peer may have sent a reason before it closed: read what arrived before reporting this failure.
      out_sent_ = 0;
      out_.clear();
      if (send_failure_) send_failure_ = sent.status();
      has_unread_ = true;
      return;
    }
    if (sent.value() == 0) return;
    out_sent_ += sent.value();
  }
  if (out_sent_ != 0 && out_sent_ == out_.size()) {
    out_sent_ = 0;
    release_if_large(out_);
  }
}

void ClosingConnections::add(std::unique_ptr<Connection> connection, Time now) {
  connection->pump();
  if (!connection->failure()) return;
  if (leaving_.size() == kMaxLingering) leaving_.erase(leaving_.begin());
  leaving_.push_back({std::move(connection), after(now, kLinger)});
}

Time ClosingConnections::step(Time now) {
  Time next = kNever;
  std::erase_if(leaving_, [&](Leaving& each) {
    each.connection->pump();
    while (each.connection->next()) {
    }
    if (!each.connection->failure() || now >= each.until) return true;
    next = std::min(next, each.connection->has_unread() ? now : each.until);
    return false;
  });
  return next;
}

}  // namespace fairway::control

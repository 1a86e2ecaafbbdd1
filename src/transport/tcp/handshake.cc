#include "transport/tcp/handshake.h"

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/runtime.h"

namespace fairway::transport::tcp {
namespace {
constexpr std::size_t kMaxText = 256;
}

std::vector<std::byte> encode(const Handshake& message) {
  std::vector<std::byte> bytes(64 + (kMaxAddresses + 1) * (kMaxText + 2));
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(message.kind));
  if (message.kind == Handshake::Kind::offer) {
    writer.put_bytes(message.token).put(message.lanes).put(static_cast<std::uint8_t>(message.addresses.size()));
    for (const std::string& address : message.addresses) writer.put_text(address);
  } else if (message.kind == Handshake::Kind::refused) {
    writer.put_text(std::string_view(message.reason).substr(0, kMaxText));
  } else if (message.kind == Handshake::Kind::segments) {
    writer.put(message.address).put(message.segment_bytes);
  }
  bytes.resize(writer.size());
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  const auto wrong = [](const char* what) {
    return Status(ErrorCode::protocol_error, std::string("malformed tcp handshake: ") + what);
  };
  ByteReader reader(bytes);
  Handshake message;
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok()) return wrong("truncated");
  if (version != kVersion)
    return Status(ErrorCode::version_mismatch, "tcp: the peer speaks handshake version " + std::to_string(version) +
                                                   ", this side " + std::to_string(kVersion) +
                                                   ": run the same Fairway on both sides");
  const auto kind = reader.get<std::uint8_t>();
  message.kind = static_cast<Handshake::Kind>(kind);
  if (kind == static_cast<std::uint8_t>(Handshake::Kind::offer)) {
    const auto token = reader.get_bytes(kTokenBytes);
    std::copy(token.begin(), token.end(), message.token.begin());
    message.lanes = reader.get<std::uint16_t>();
    const auto count = reader.get<std::uint8_t>();
    if (count == 0 || count > kMaxAddresses) return wrong("the number of addresses is out of range");
    for (std::uint8_t i = 0; i < count && reader.ok(); ++i) {
      message.addresses.push_back(reader.get_text());
      if (message.addresses.back().size() > kMaxText) return wrong("an address is too long");
    }
    if (message.lanes == 0 || message.lanes * count > kMaxLanesPerPeer)
      return wrong("the number of lanes is out of range");
  } else if (kind == static_cast<std::uint8_t>(Handshake::Kind::refused)) {
    message.reason = reader.get_text();
    if (message.reason.size() > kMaxText) return wrong("the reason is too long");
  } else if (kind == static_cast<std::uint8_t>(Handshake::Kind::segments)) {
    message.address = reader.get<std::uint8_t>();
    message.segment_bytes = reader.get<std::uint16_t>();
    if (message.address >= kMaxAddresses || message.segment_bytes < kLeastSegment)
      return wrong("the segments are too short, or of no address");
  } else if (kind != static_cast<std::uint8_t>(Handshake::Kind::hello)) {
    return wrong("unknown kind of message");
  }
  if (!reader.done()) return wrong("wrong length");
  return message;
}

namespace {

// While the worker polls. One that sleeps is told by the listener, also for so many polls afterwards.
constexpr Time kAcceptEvery = kMillisecond;
constexpr std::uint32_t kToldPolls = 64;

}  // namespace

Status DataPort::listen(const std::string& address, Task& task) {
  if (listener_) return {};
  task_ = &task;
  auto opened = runtime_.network.listen(address, task);
  if (!opened) return opened.status();
  listener_ = std::move(*opened);
  const auto rejection = encode_welcome(0, Answer::out_of_descriptors);
  if (auto* sender = dynamic_cast<RejectionSender*>(listener_.get()))
    sender->set_rejection({rejection.begin(), rejection.end()});
  return {};
}

void DataPort::poll(Time now, const OnHello& on_hello) {
  if (!listener_) return;
  const bool told = polls_ < kToldPolls;
  if (told) ++polls_;
  const bool left = pending_.paused_until() != 0;  // some wait since before the pause
  if (now >= pending_.paused_until() && (left || listener_->announced() || (!told && now >= accept_at_))) {
    accept(now);
    accept_at_ = after(now, kAcceptEvery);
  }
  pending_.look(now, [&](Incoming& from, bool late) {
    const auto got = from.channel->receive(std::span(from.bytes).subspan(from.received));
    if (!got) return true;
    from.received += *got;
    if (from.received < kHelloBytes) return late;
    if (const auto hello = decode_hello(from.bytes)) on_hello(std::move(from.channel), *hello);
    return true;
  });
}

void DataPort::accept(Time now) {
  const auto find = [this](Incoming& out) {
    auto accepted = listener_->accept(*task_);
    if (!accepted) return Pending::Found::no_descriptor;
    out.channel = std::move(*accepted);
    return out.channel == nullptr ? Pending::Found::none : Pending::Found::one;
  };
  pending_.accept(now, find, [](Incoming&) {});
}

void DataPort::close() {
  listener_.reset();
  pending_.clear();
}

}  // namespace fairway::transport::tcp

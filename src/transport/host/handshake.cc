#include "transport/host/handshake.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/bytes.h"

namespace fairway::transport::host {
namespace {

constexpr std::size_t kMaxText = 256;

Status wrong(const char* what) {
  return {ErrorCode::protocol_error, std::string("malformed handshake: ") + what};
}

void read_token(ByteReader& reader, Token& token) {
  const auto bytes = reader.get_bytes(token.size());
  std::copy(bytes.begin(), bytes.end(), token.begin());
}

Status check_version(ByteReader& reader) {
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok()) return wrong("truncated");
  if (version == kVersion) return {};
  return {ErrorCode::version_mismatch, "the peer speaks handshake version " + std::to_string(version) + ", this side " +
                                           std::to_string(kVersion) + ": run the same Fairway on both sides"};
}

}  // namespace

std::vector<std::byte> encode(const Handshake& message) {
  std::vector<std::byte> bytes(64 + 2 * (kMaxText + 2));
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(message.kind));
  if (message.kind == Handshake::Kind::offer)
    writer.put_text(message.socket).put_bytes(message.dialer).put_bytes(message.listener);
  if (message.kind == Handshake::Kind::refused) writer.put_text(std::string_view(message.reason).substr(0, kMaxText));
  bytes.resize(writer.size());
  return bytes;
}

Result<Handshake> decode_handshake(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (Status status = check_version(reader); !status) return status;
  Handshake message;
  const auto kind = reader.get<std::uint8_t>();
  message.kind = static_cast<Handshake::Kind>(kind);
  if (kind == static_cast<std::uint8_t>(Handshake::Kind::offer)) {
    message.socket = reader.get_text();
    if (message.socket.empty() || message.socket.size() > 100) return wrong("the socket name has a wrong length");
    read_token(reader, message.dialer);
    read_token(reader, message.listener);
  } else if (kind == static_cast<std::uint8_t>(Handshake::Kind::refused)) {
    message.reason = reader.get_text();
    if (message.reason.size() > kMaxText) return wrong("the reason is too long");
  } else if (kind != static_cast<std::uint8_t>(Handshake::Kind::hello)) {
    return wrong("unknown kind of message");
  }
  if (!reader.done()) return wrong("wrong length");
  return message;
}

std::vector<std::byte> encode(const Note& note) {
  std::vector<std::byte> bytes(64 + kMaxText + 2);
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(note.kind));
  if (note.kind == Note::Kind::hello || note.kind == Note::Kind::welcome) {
    writer.put_bytes(note.token).put(note.attempt).put(note.regions).put(note.nonce_at);
  } else if (note.kind == Note::Kind::recall) {
    writer.put(note.region.slot).put(note.region.generation);
  } else if (note.kind == Note::Kind::refused) {
    writer.put_text(std::string_view(note.reason).substr(0, kMaxText));
  } else if (note.kind != Note::Kind::ring) {
    writer.put(note.file).put(static_cast<std::uint8_t>(note.writable)).put(note.part);
    if (note.kind == Note::Kind::no_file) writer.put_text(std::string_view(note.reason).substr(0, kMaxText));
  }
  bytes.resize(writer.size());
  return bytes;
}

Result<Note> decode_note(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (Status status = check_version(reader); !status) return status;
  Note note;
  const auto kind = reader.get<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(Note::Kind::hello) || kind > static_cast<std::uint8_t>(Note::Kind::refused))
    return wrong("unknown kind of note");
  note.kind = static_cast<Note::Kind>(kind);
  if (note.kind == Note::Kind::hello || note.kind == Note::Kind::welcome) {
    read_token(reader, note.token);
    note.attempt = reader.get<std::uint32_t>();
    note.regions = reader.get<std::uint32_t>();
    note.nonce_at = reader.get<std::uint64_t>();
  } else if (note.kind == Note::Kind::recall) {
    note.region.slot = reader.get<std::uint32_t>();
    note.region.generation = reader.get<std::uint32_t>();
  } else if (note.kind == Note::Kind::refused) {
    note.reason = reader.get_text();
  } else if (note.kind != Note::Kind::ring) {
    note.file = reader.get<std::uint32_t>();
    note.writable = reader.get<std::uint8_t>() != 0;
    note.part = reader.get<std::uint32_t>();
    if (note.kind == Note::Kind::no_file) note.reason = reader.get_text();
  }
  if (!reader.done()) return wrong("a note of the wrong length");
  return note;
}

std::vector<std::byte> encode(const Key& key) {
  std::vector<std::byte> bytes(12 + key.handle.size());
  ByteWriter(bytes).put(key.file).put(key.offset).put_bytes(key.handle);
  return bytes;
}

Result<Key> decode_key(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Key key;
  key.file = reader.get<std::uint32_t>();
  key.offset = reader.get<std::uint64_t>();
  const auto handle = reader.rest();
  if (!reader.ok()) return wrong("a truncated key");
  key.handle.assign(handle.begin(), handle.end());
  return key;
}

namespace {

std::vector<std::byte> refusal(std::string reason) {
  Note note;
  note.kind = Note::Kind::refused;
  note.reason = std::move(reason);
  return encode(note);
}

}  // namespace

Status JoinSocket::listen(Task& task) {
  if (listener_) return {};
  task_ = &task;
  Token random;
  runtime_.rng.fill(random);
  name_ = "fairway-";
  for (const std::byte each : random) name_ += fmt::format("{:02x}", std::to_integer<unsigned>(each));
  auto listener = sys::LocalListener::listen(name_);
  if (!listener) return listener.status();
  listener_ = std::move(*listener);
  return task_->watch(listener_.fd());
}

void JoinSocket::poll(Time now, const OnRequest& on_request) {
  if (listener_ && now >= pending_.paused_until()) accept(now);
  pending_.look(now, [&](sys::LocalSocket& socket, bool late) { return receive(socket, late, on_request); });
}

void JoinSocket::accept(Time now) {
  if (pending_.paused_until() != 0) static_cast<void>(task_->watch(listener_.fd()));
  const auto find = [this](sys::LocalSocket& out) {
    auto socket = listener_.accept(refusal("the peer's process is out of file descriptors: raise its ulimit -n"));
    if (!socket) return Pending::Found::no_descriptor;
    if (!*socket) return Pending::Found::none;
    if (!socket->of_this_user()) return Pending::Found::unwanted;
    out = std::move(*socket);
    static_cast<void>(task_->watch(out.fd()));
    return Pending::Found::one;
  };
  pending_.accept(now, find, [this](const sys::LocalSocket& oldest) { task_->unwatch(oldest.fd()); });
  if (pending_.paused_until() != 0) task_->unwatch(listener_.fd());
}

bool JoinSocket::receive(sys::LocalSocket& socket, bool late, const OnRequest& on_request) {
  auto message = socket.receive();
  if (message && !*message && !late) return false;
  task_->unwatch(socket.fd());
  if (!message) {
    if (message.status().code() == ErrorCode::resource_exhausted)
      static_cast<void>(socket.send(refusal(message.status().message()), {}));
    return true;
  }
  if (!*message) return true;
  const auto note = decode_note((*message)->bytes);
  if (!note && note.status().code() == ErrorCode::version_mismatch)
    static_cast<void>(socket.send(refusal(note.status().message()), {}));
  if (note && note->kind == Note::Kind::hello && (*message)->fds.size() == Note::kHelloFds)
    on_request({std::move(socket), *note, std::move((*message)->fds)});
  return true;
}

void JoinSocket::close() {
  pending_.clear();
  listener_ = {};
}

}  // namespace fairway::transport::host

#include "control/directory_server.h"

#include <algorithm>

#include <fmt/format.h>

#include "control/directory.h"
#include "control/frame.h"

namespace fairway::control {
namespace {

Status taken(const std::string& name) {
  return {ErrorCode::already_exists, fmt::format("an engine that started later has the name {}", name)};
}

}  // namespace

Status DirectoryTable::publish(const std::string& record, std::uint64_t unix_ns) {
  const auto decoded = decode_record(key_, record, unix_ns);
  if (!decoded) return decoded.status();
  const auto found = entries_.find(decoded->name);
  if (found == entries_.end() && entries_.size() >= kMaxNames) drop_expired(unix_ns);
  if (found == entries_.end() && entries_.size() >= kMaxNames)
    return {ErrorCode::resource_exhausted, fmt::format("the directory is full: it holds {} names", kMaxNames)};
  if (found != entries_.end() && found->second.expires_unix_ms >= unix_ns / kNsPerMs &&
      found->second.record.compare(0, kStartedText, record, 0, kStartedText) > 0)
    return taken(decoded->name);
  entries_[decoded->name] = {record, decoded->expires_unix_ms};
  return {};
}

Status DirectoryTable::withdraw(const std::string& name, const std::string& started) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  if (found->second.record.compare(0, kStartedText, started) != 0) return taken(name);
  entries_.erase(found);
  return {};
}

Result<std::string> DirectoryTable::lookup(const std::string& name, std::uint64_t unix_ns) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.expires_unix_ms < unix_ns / kNsPerMs)
    return Status(ErrorCode::not_found, fmt::format("no engine has published the name {}", name));
  return found->second.record;
}

void DirectoryTable::drop_expired(std::uint64_t unix_ns) {
  std::erase_if(entries_, [&](const auto& each) { return each.second.expires_unix_ms < unix_ns / kNsPerMs; });
}

namespace {

constexpr std::size_t kMostUnsent = 65536;  // a client that does not read its answers is closed beyond this

Answer answer_of(std::uint64_t id, const Result<std::string>& result) {
  if (result) return {id, Verdict::done, result.value()};
  const ErrorCode code = result.status().code();
  const Verdict verdict = code == ErrorCode::not_found        ? Verdict::absent
                          : code == ErrorCode::already_exists ? Verdict::taken
                                                              : Verdict::refused;
  return {id, verdict, result.status().message()};
}

Result<std::string> empty_if(const Status& status) {
  return status ? Result<std::string>(std::string()) : status;
}

}  // namespace

void DirectoryServer::add(std::unique_ptr<Connection> connection, Time now) {
  clients_.push_back({std::move(connection), now});
}

Time DirectoryServer::step(Time now) {
  std::erase_if(clients_, [&](Client& client) { return !step(client, now); });
  Time next = kNever;
  for (const Client& client : clients_)
    next = std::min(next, client.connection->has_unread() ? now : after(client.last_heard, kIdleTimeout));
  return next;
}

bool DirectoryServer::step(Client& client, Time now) {
  client.connection->pump();
  while (const auto frame = client.connection->next()) {
    client.last_heard = now;
    if (!on_frame(*client.connection, *frame)) {
      context_.observer.refused(client.connection->peer_address(),
                                {ErrorCode::protocol_error, "unexpected frame on a directory connection"});
      return false;
    }
  }
  client.connection->flush();
  return client.connection->failure().is_ok() && client.connection->unsent() <= kMostUnsent &&
         now < after(client.last_heard, kIdleTimeout);
}

bool DirectoryServer::on_frame(Connection& connection, const Frame& frame) {
  const std::uint64_t unix_ns = context_.runtime.clock.unix_ns();
  if (frame.type == FrameType::publish) {
    const auto publish = Publish::read(frame.body);
    if (publish) connection.put(answer_of(publish->id, empty_if(table_.publish(publish->record, unix_ns))));
    return publish.is_ok();
  }
  if (frame.type == FrameType::withdraw) {
    const auto withdraw = Withdraw::read(frame.body);
    if (withdraw) connection.put(answer_of(withdraw->id, empty_if(table_.withdraw(withdraw->name, withdraw->started))));
    return withdraw.is_ok();
  }
  if (frame.type != FrameType::lookup) return false;
  const auto lookup = Lookup::read(frame.body);
  if (lookup) connection.put(answer_of(lookup->id, table_.lookup(lookup->name, unix_ns)));
  return lookup.is_ok();
}

}  // namespace fairway::control

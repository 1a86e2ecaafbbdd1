#include "control/directory_server.h"

#include <algorithm>

#include "control/directory_bodies.h"

namespace fairway::control {
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

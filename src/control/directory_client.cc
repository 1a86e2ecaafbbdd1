#include "control/directory_client.h"

#include <algorithm>

#include <fmt/format.h>

#include "control/directory.h"

namespace fairway::control {
namespace {

constexpr Time kFirstAsk = 20 * kMillisecond;  // first interval between two lookups of one name
constexpr Time kLastAsk = 500 * kMillisecond;
constexpr Time kLastPublishRetry = kSecond;
constexpr std::size_t kMaxResolutions = 1024;

Time pause_after(std::uint32_t tries, Time most) {
  return std::min(most, kFirstAsk << std::min<std::uint32_t>(tries, 16));
}

Status not_found_in_time(const std::string& name, const Status& last) {
  if (!last) return last;
  return {ErrorCode::timed_out, fmt::format("the directory did not answer for \"{}\" in time", name)};
}

}  // namespace

Status DirectoryClient::open(DirectoryTable* table) {
  const std::string& where = context_.options.directory;
  if (where.empty()) return {};
  if (table) {
    directory_ = open_local_directory(*table, *this, context_.runtime.clock);
  } else if (where.starts_with("redis://")) {
    auto redis = open_redis_directory(where, context_, *this);
    if (!redis) return redis.status();
    directory_ = std::move(redis).value();
  } else if (where.starts_with("etcd://")) {
    auto etcd = open_etcd_directory(where, context_, *this);
    if (!etcd) return etcd.status();
    directory_ = std::move(etcd).value();
  } else {
    directory_ = open_embedded_directory(where, context_, *this);
  }
  return {};
}

void DirectoryClient::resolve(const std::string& name, std::uint64_t token, Time deadline, Time now) {
  const auto refuse = [&](ErrorCode code, std::string text) {
    context_.observer.resolve_done(token, Status(code, std::move(text)));
  };
  if (!directory_)
    return refuse(ErrorCode::invalid_argument,
                  fmt::format("\"{}\" is a name, not an address (host:port), and no directory is set to look it up in: "
                              "give EngineOptions::directory",
                              name));
  if (name.empty() || name.size() > kMaxName)
    return refuse(ErrorCode::invalid_argument, fmt::format("a name has 1 to {} bytes", kMaxName));
  if (resolutions_.size() >= kMaxResolutions) return refuse(ErrorCode::queue_full, "too many name lookups are pending");
  resolutions_.push_back({name, token, deadline, 0, now, 0, {}, false});
}

void DirectoryClient::publish(Time now) {
  Record record;
  record.name = context_.name;
  record.address = context_.address;
  record.incarnation = context_.incarnation;
  record.started_unix_ns = context_.started_unix_ns;
  record.expires_unix_ms = (context_.runtime.clock.unix_ns() + kLifetime) / kMillisecond;
  auto bytes = encode_record(context_.wire.key, record);
  if (!bytes) {
    publish_at_ = after(now, kLifetime);
    return on_published(bytes.status());
  }
  Directory::Request request;
  request.kind = Directory::Kind::publish;
  request.id = publish_id_ = next_id_++;
  request.name = context_.name;
  request.record = std::move(bytes).value();
  request.lifetime = kLifetime;
  directory_->ask(std::move(request), now);
}

Time DirectoryClient::step(Time now) {
  if (!directory_) return kNever;
  now_ = now;
  if (publish_id_ == 0 && !leaving_ && now >= publish_at_) publish(now);
  for (std::size_t i = 0; i < resolutions_.size(); ++i) {
    Resolution& resolution = resolutions_[i];
    if (resolution.done || resolution.id != 0 || now < resolution.next_ask || now >= resolution.deadline) continue;
    Directory::Request request;
    request.id = resolution.id = next_id_++;
    request.name = resolution.name;
    ++resolution.asked;
    directory_->ask(std::move(request), now);
  }
  const Time directory_next = directory_->step(now);
  for (Resolution& resolution : resolutions_)
    if (!resolution.done && now >= resolution.deadline)
      finish(resolution, not_found_in_time(resolution.name, resolution.last));
  std::erase_if(resolutions_, [](const Resolution& resolution) { return resolution.done; });
  Time next = directory_next;
  if (publish_id_ == 0 && !leaving_) next = std::min(next, publish_at_);
  for (const Resolution& resolution : resolutions_)
    next = std::min({next, resolution.deadline, resolution.id == 0 ? resolution.next_ask : kNever});
  return next;
}

void DirectoryClient::answered(std::uint64_t id, Result<std::string> result) {
  if (id == withdraw_id_) {
    withdraw_id_ = 0;
    return;
  }
  if (id == publish_id_) {
    publish_id_ = 0;
    if (result) {
      publish_failures_ = 0;
      publish_at_ = after(now_, context_.jittered(kLifetime / 3));
    } else {
      publish_at_ = after(now_, context_.jittered(pause_after(publish_failures_++, kLastPublishRetry)));
    }
    return on_published(result.status());
  }
  const auto found =
      std::find_if(resolutions_.begin(), resolutions_.end(), [&](const Resolution& each) { return each.id == id; });
  if (found != resolutions_.end()) on_record(*found, std::move(result));
}

void DirectoryClient::lost() {
  publish_at_ = std::min(publish_at_, after(now_, context_.jittered(kFirstAsk)));
}

void DirectoryClient::on_published(const Status& status) {
  if (published_ == status.code()) return;
  published_ = status.code();
  context_.observer.published(status);
}

void DirectoryClient::on_record(Resolution& resolution, Result<std::string> result) {
  resolution.id = 0;
  resolution.next_ask = after(now_, context_.jittered(pause_after(resolution.asked, kLastAsk)));
  Status status = result.status();
  if (status) {
    const auto record = decode_record(context_.wire.key, result.value(), context_.runtime.clock.unix_ns());
    status = record.status();
    if (status && record->name != resolution.name)
      status =
          Status(ErrorCode::authentication_failed,
                 fmt::format("the directory returned the record of {}: someone swapped the records", record->name));
    if (status) return finish(resolution, record->address);
  }
  resolution.last = status.with_context("\"" + resolution.name + "\"");
  // Asking again soon cannot mend a wrong record, so report the error at once.
  const ErrorCode code = status.code();
  if (code == ErrorCode::authentication_failed || code == ErrorCode::protocol_error ||
      code == ErrorCode::version_mismatch || code == ErrorCode::unsupported)
    finish(resolution, resolution.last);
}

void DirectoryClient::finish(Resolution& resolution, Result<std::string> address) {
  resolution.done = true;
  context_.observer.resolve_done(resolution.token, std::move(address));
}

void DirectoryClient::leave(const Status& reason, Time now) {
  now_ = now;
  leaving_ = true;
  for (Resolution& resolution : resolutions_)
    if (!resolution.done) finish(resolution, reason);
  if (!directory_) return;
  Directory::Request request;
  request.kind = Directory::Kind::withdraw;
  request.id = withdraw_id_ = next_id_++;
  request.name = context_.name;
  request.started = started_text(context_.started_unix_ns);
  directory_->ask(std::move(request), now);
}

}  // namespace fairway::control

#include "control/directory.h"

#ifndef FAIRWAY_HAVE_HIREDIS

namespace fairway::control {

Result<std::unique_ptr<Directory>> open_redis_directory(const std::string&, ControlContext&, Directory::Answers&) {
  return Status(ErrorCode::unsupported,
                "this build has no Redis support: install libhiredis-dev and configure again, or use \"serve\" and "
                "\"host:port\"");
}

}  // namespace fairway::control

#else

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

namespace fairway::control {
namespace {

constexpr std::size_t kMostReply = 65536;  // limit on received bytes before one whole reply is parsed
constexpr const char* kDefaultPrefix = "fairway:";

// Both scripts compare the start time at the beginning of a record. Redis runs a script atomically.
constexpr const char* kPublishScript =
    "local v = redis.call('GET', KEYS[1]) "
    "if v and string.sub(v, 1, 16) > string.sub(ARGV[1], 1, 16) then return 0 end "
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
constexpr const char* kWithdrawScript =
    "local v = redis.call('GET', KEYS[1]) "
    "if v and string.sub(v, 1, 16) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1";

// One reply, by the types of the Redis protocol. A value.
struct Reply {
  int type = REDIS_REPLY_NIL;
  long long number = 0;
  std::string text;
};

// Reply types of RESP3, which this client never requests; older versions of hiredis do not define them.
template <class Functions>
void refuse_newer_types(Functions& functions) {
  if constexpr (requires { functions.createDouble; }) functions.createDouble = [](auto...) -> void* { return nullptr; };
  if constexpr (requires { functions.createBool; }) functions.createBool = [](auto...) -> void* { return nullptr; };
}

// hiredis builds replies with these functions. Arrays are refused, which ends the connection before hiredis allocates a
// size that the server chose.
redisReplyObjectFunctions reply_functions() {
  redisReplyObjectFunctions functions{};
  functions.createString = [](const redisReadTask* task, char* text, std::size_t size) -> void* {
    return new Reply{task->type, 0, std::string(text, size)};
  };
  functions.createArray = [](const redisReadTask*, auto) -> void* { return nullptr; };
  functions.createInteger = [](const redisReadTask* task, long long number) -> void* {
    return new Reply{task->type, number, {}};
  };
  functions.createNil = [](const redisReadTask*) -> void* { return new Reply; };
  functions.freeObject = [](void* reply) { delete static_cast<Reply*>(reply); };
  refuse_newer_types(functions);
  return functions;
}

struct Place {
  std::string address;
  std::string user;  // empty: the server's default one
  std::string password;
  std::string prefix = kDefaultPrefix;
};

// The last '@' ends the user and password, which may hold any other character.
Result<Place> parse_url(const std::string& url) {
  const auto wrong = [](const char* what) {
    return Status(
        ErrorCode::invalid_argument,
        fmt::format("the directory's redis URL has {}; write redis://[[user]:password@]host:port[/prefix]", what));
  };
  Place place;
  std::string rest = url.substr(std::string("redis://").size());
  if (const auto at = rest.rfind('@'); at != std::string::npos) {
    const auto colon = rest.find(':');
    if (colon > at) return wrong("no ':' before its password");
    place.user = rest.substr(0, colon);
    place.password = rest.substr(colon + 1, at - colon - 1);
    if (place.password.empty()) return wrong("no password before its '@'");
    rest = rest.substr(at + 1);
  }
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    if (slash + 1 < rest.size()) place.prefix = rest.substr(slash + 1);
    rest.resize(slash);
  }
  const auto colon = rest.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) return wrong("no host and port");
  place.address = rest;
  return place;
}

// A Redis server, through hiredis' formatter and parser over a Channel. Used on the control thread.
class RedisDirectory final : public Directory {
 public:
  RedisDirectory(Place place, ControlContext& context, Answers& answers)
      : place_(std::move(place)), context_(context), answers_(answers) {}

  void ask(Request request, Time now) override;
  Time step(Time now) override;

 private:
  struct Waiting {
    std::optional<std::uint64_t> id;  // none: this client's own AUTH
    Kind kind;
    std::string name;
    Time until;
  };
  struct FreeReader {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };

  void dial(Time now);
  void command(std::initializer_list<std::string_view> words);
  Status flush();
  Status receive();
  void on_reply(const Reply& reply);
  void lost(Status why, Time now);

  const Place place_;
  ControlContext& context_;
  Answers& answers_;
  redisReplyObjectFunctions functions_ = reply_functions();
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<redisReader, FreeReader> reader_;
  std::string out_;
  std::size_t fed_ = 0;  // bytes received since the last whole reply
  bool answered_ = false;
  Time retry_at_ = 0;
  std::uint32_t failures_ = 0;
  Status last_error_;
  std::deque<Waiting> waiting_;  // Redis answers in order
};

void RedisDirectory::command(std::initializer_list<std::string_view> words) {
  std::array<const char*, 8> at{};
  std::array<std::size_t, 8> sizes{};
  int count = 0;
  for (const auto word : words) {
    at[static_cast<std::size_t>(count)] = word.data();
    sizes[static_cast<std::size_t>(count++)] = word.size();
  }
  char* text = nullptr;
  const int size = redisFormatCommandArgv(&text, count, at.data(), sizes.data());
  if (size > 0) out_.append(text, static_cast<std::size_t>(size));
  redisFreeCommand(text);
}

void RedisDirectory::ask(Request request, Time now) {
  if (!channel_ && now < retry_at_) return answers_.answered(request.id, last_error_);
  if (waiting_.size() >= RemoteDirectoryLimits::kMaxWaiting)
    return answers_.answered(request.id, Status(ErrorCode::queue_full, "too many requests to Redis are pending"));
  if (!channel_) dial(now);
  if (!channel_) return answers_.answered(request.id, last_error_);
  const std::string key = place_.prefix + request.name;
  switch (request.kind) {
    case Kind::publish:
      command({"EVAL", kPublishScript, "1", key, request.record, std::to_string(request.lifetime / kMillisecond)});
      break;
    case Kind::withdraw: command({"EVAL", kWithdrawScript, "1", key, request.started}); break;
    case Kind::lookup: command({"GET", key}); break;
  }
  waiting_.push_back({request.id, request.kind, request.name, after(now, RemoteDirectoryLimits::kAnswerBound)});
}

void RedisDirectory::dial(Time now) {
  auto channel = context_.runtime.network.dial(place_.address, *context_.task);
  if (!channel) return lost(channel.status(), now);
  channel_ = std::move(channel).value();
  reader_.reset(redisReaderCreateWithFunctions(&functions_));
  out_.clear();
  fed_ = 0;
  answered_ = false;
  if (place_.password.empty()) return;
  if (place_.user.empty())
    command({"AUTH", place_.password});
  else
    command({"AUTH", place_.user, place_.password});
  waiting_.push_back({std::nullopt, Kind::lookup, {}, after(now, RemoteDirectoryLimits::kAnswerBound)});
}

Time RedisDirectory::step(Time now) {
  if (!channel_) return kNever;  // the next request reconnects
  Status status = flush();
  if (const Status received = receive(); !received) status = received;
  if (status && !waiting_.empty() && now >= waiting_.front().until)
    status = {ErrorCode::timed_out, "it does not answer"};
  if (!status) {
    lost(status, now);
    return kNever;
  }
  return waiting_.empty() ? kNever : waiting_.front().until;
}

Status RedisDirectory::flush() {
  while (!out_.empty()) {
    auto sent = channel_->send(std::as_bytes(std::span(out_.data(), out_.size())));
    if (!sent) return sent.status();
    if (sent.value() == 0) return {};
    out_.erase(0, sent.value());
  }
  return {};
}

Status RedisDirectory::receive() {
  const Status senseless(ErrorCode::protocol_error, "the server there does not speak the Redis protocol");
  std::array<char, 4096> bytes;
  for (;;) {
    auto got = channel_->receive(std::as_writable_bytes(std::span(bytes)));
    if (!got) return got.status();
    if (got.value() == 0) return {};
    fed_ += got.value();
    if (!reader_ || redisReaderFeed(reader_.get(), bytes.data(), got.value()) != REDIS_OK) return senseless;
    for (;;) {
      void* object = nullptr;
      if (redisReaderGetReply(reader_.get(), &object) != REDIS_OK) return senseless;
      if (!object) break;
      const std::unique_ptr<Reply> reply(static_cast<Reply*>(object));
      if (waiting_.empty()) return senseless;
      fed_ = 0;
      on_reply(*reply);
    }
    if (fed_ > kMostReply) return senseless;
  }
}

void RedisDirectory::on_reply(const Reply& reply) {
  const Waiting asked = std::move(waiting_.front());
  waiting_.pop_front();
  if (!answered_) {
    answered_ = true;
    failures_ = 0;
  }
  if (!asked.id) return;  // a wrong password shows in the answers that follow
  if (reply.type == REDIS_REPLY_ERROR)
    return answers_.answered(*asked.id,
                             Status(ErrorCode::unreachable,
                                    fmt::format("Redis at {} refused: {}", place_.address, server_text(reply.text))));
  const bool is_record = asked.kind == Kind::lookup && reply.type == REDIS_REPLY_STRING;
  if (is_record) return answers_.answered(*asked.id, reply.text);
  if (asked.kind == Kind::lookup)
    return answers_.answered(
        *asked.id, Status(ErrorCode::not_found, fmt::format("no engine has published the name {}", asked.name)));
  if (asked.kind == Kind::publish && reply.number != 1)
    return answers_.answered(
        *asked.id, Status(ErrorCode::already_exists, fmt::format("a later engine has the name {}", asked.name)));
  answers_.answered(*asked.id, std::string());
}

void RedisDirectory::lost(Status why, Time now) {
  channel_.reset();
  reader_.reset();
  retry_at_ = after(now, context_.jittered(RemoteDirectoryLimits::pause_after(failures_++)));
  last_error_ = Status(ErrorCode::unreachable, fmt::format("Redis at {}: {}", place_.address, why.message()));
  for (const Waiting& each : std::exchange(waiting_, {}))
    if (each.id) answers_.answered(*each.id, last_error_);
  answers_.lost();
}

}  // namespace

Result<std::unique_ptr<Directory>> open_redis_directory(const std::string& url, ControlContext& context,
                                                        Directory::Answers& answers) {
  auto place = parse_url(url);
  if (!place) return place.status();
  return std::unique_ptr<Directory>(new RedisDirectory(std::move(place).value(), context, answers));
}

}  // namespace fairway::control

#endif

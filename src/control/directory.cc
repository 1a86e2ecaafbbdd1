#include "control/directory.h"

#include <algorithm>
#include <array>
#include <deque>

#include <fmt/format.h>

#include "control/connection.h"
#include "control/directory_server.h"
#include "control/frame.h"
#include "core/bytes.h"

namespace fairway::control {
namespace {

constexpr std::uint16_t kVersion = 1;
// Allowed clock skew between two hosts before a fresh record counts as expired.
constexpr std::uint64_t kSkewMs = 5'000;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status malformed_record(std::string_view why) {
  return {ErrorCode::protocol_error, fmt::format("the directory holds a malformed record: {}", why)};
}

}  // namespace

std::string started_text(std::uint64_t started_unix_ns) {
  return fmt::format("{:016x}", started_unix_ns);
}

Result<std::string> encode_record(JobKey& key, const Record& record) {
  std::array<std::byte, kMaxRecord> bytes{};
  ByteWriter out(bytes);
  out.put_bytes(bytes_of(started_text(record.started_unix_ns))).put(kVersion);
  out.put_text(record.name).put_text(record.address).put(record.incarnation).put(record.expires_unix_ms);
  const auto mac = key.derive(kRecordProof, {out.written()});
  if (!mac) return Status(ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256");
  out.put_bytes(*mac);
  if (!out.ok() || record.name.size() > kMaxName || record.address.size() > kMaxName)
    return Status(ErrorCode::invalid_argument, fmt::format("the name or address is longer than {} bytes", kMaxName));
  return std::string(reinterpret_cast<const char*>(bytes.data()), out.size());
}

Result<Record> decode_record(JobKey& key, std::string_view text, std::uint64_t unix_ns) {
  const auto bytes = bytes_of(text);
  if (bytes.size() > kMaxRecord || bytes.size() < sizeof(Mac) + kStartedText) return malformed_record("its size");
  const auto content = bytes.first(bytes.size() - sizeof(Mac));
  const auto mac = key.derive(kRecordProof, {content});
  if (!mac || !same(*mac, bytes.last(sizeof(Mac))))
    return Status(
        ErrorCode::authentication_failed,
        "the directory's record is not signed with this job's key: it was forged, or another job uses this name");
  ByteReader reader(content);
  Record record;
  for (const std::byte digit : reader.get_bytes(kStartedText)) {
    const auto letter = static_cast<char>(digit);
    const bool decimal = letter >= '0' && letter <= '9';
    if (!decimal && !(letter >= 'a' && letter <= 'f')) return malformed_record("its start time");
    record.started_unix_ns =
        record.started_unix_ns << 4 | static_cast<std::uint64_t>(decimal ? letter - '0' : letter - 'a' + 10);
  }
  if (reader.get<std::uint16_t>() != kVersion)
    return Status(ErrorCode::version_mismatch,
                  "the directory's record was written by another version of Fairway: update the older one");
  record.name = reader.get_text();
  record.address = reader.get_text();
  record.incarnation = reader.get<std::uint64_t>();
  record.expires_unix_ms = reader.get<std::uint64_t>();
  if (!reader.done()) return malformed_record("its size");
  if (record.name.empty() || record.name.size() > kMaxName || record.address.empty() ||
      record.address.size() > kMaxName)
    return malformed_record("its name or address");
  if (record.expires_unix_ms + kSkewMs < unix_ns / kNsPerMs)
    return Status(ErrorCode::not_found, fmt::format("the record of {} expired: its engine is gone", record.name));
  return record;
}

namespace {

// Answers from the table that this engine serves. Used on the control thread.
class LocalDirectory final : public Directory {
 public:
  LocalDirectory(DirectoryTable& table, Answers& answers, Clock& clock)
      : table_(table), answers_(answers), clock_(clock) {}

  void ask(Request request, Time) override {
    if (request.kind == Kind::lookup)
      return answers_.answered(request.id, table_.lookup(request.name, clock_.unix_ns()));
    const Status status = request.kind == Kind::publish ? table_.publish(request.record, clock_.unix_ns())
                                                        : table_.withdraw(request.name, request.started);
    answers_.answered(request.id, status ? Result<std::string>(std::string()) : status);
  }
  Time step(Time) override { return kNever; }

 private:
  DirectoryTable& table_;
  Answers& answers_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<Directory> open_local_directory(DirectoryTable& table, Directory::Answers& answers, Clock& clock) {
  return std::make_unique<LocalDirectory>(table, answers, clock);
}

Status check_directory(const std::string& directory) {
  if (directory.empty() || directory == "serve" || directory.rfind(':') != std::string::npos) return {};
  return {
      ErrorCode::invalid_argument,
      "EngineOptions::directory is \"" + directory +
          "\"; it may be empty, \"serve\", \"host:port\" of the engine that serves, \"redis://host:port[/prefix]\", or "
          "\"etcd://host:port[,host:port...][/prefix]\""};
}

namespace {

// The connection to the engine that serves the directory. It is opened on the first request and reopened after it
// broke. Used on the control thread.
class EmbeddedDirectory final : public Directory {
 public:
  EmbeddedDirectory(std::string address, ControlContext& context, Answers& answers)
      : address_(std::move(address)), context_(context), answers_(answers) {}

  void ask(Request request, Time now) override;
  Time step(Time now) override;

 private:
  struct Waiting {
    std::uint64_t id;
    Time until;
  };
  void dial(Time now);
  void put(const Request& request);
  void on_frame(const Frame& frame, Time now);
  void on_answer(const Answer& answer);
  void lost(Status why, Time now);

  const std::string address_;
  ControlContext& context_;
  Answers& answers_;
  std::unique_ptr<Connection> connection_;
  bool identified_ = false;
  bool accepted_ = false;
  Time accept_by_ = kNever;
  Time retry_at_ = 0;
  std::uint32_t failures_ = 0;
  Status last_error_;
  std::vector<Request> queued_;  // until the connection is accepted
  std::deque<Waiting> waiting_;  // requests in flight, in the order of their deadlines
};

void EmbeddedDirectory::ask(Request request, Time now) {
  if (!connection_ && now < retry_at_) return answers_.answered(request.id, last_error_);
  if (waiting_.size() >= RemoteDirectoryLimits::kMaxWaiting)
    return answers_.answered(request.id,
                             Status(ErrorCode::queue_full, "too many requests to the directory are pending"));
  waiting_.push_back({request.id, after(now, RemoteDirectoryLimits::kAnswerBound)});
  accepted_ ? put(request) : queued_.push_back(std::move(request));
}

void EmbeddedDirectory::put(const Request& request) {
  switch (request.kind) {
    case Kind::publish: return connection_->put(Publish{request.id, request.record});
    case Kind::withdraw: return connection_->put(Withdraw{request.id, request.name, request.started});
    case Kind::lookup: return connection_->put(Lookup{request.id, request.name});
  }
}

void EmbeddedDirectory::dial(Time now) {
  auto channel = context_.runtime.network.dial(address_, *context_.task);
  if (!channel) return lost(channel.status(), now);
  connection_ = std::make_unique<Connection>(context_.wire, std::move(channel).value(), Role::dialer);
  accept_by_ = after(now, RemoteDirectoryLimits::kAnswerBound);
  identified_ = accepted_ = false;
}

Time EmbeddedDirectory::step(Time now) {
  if (!connection_ && !waiting_.empty() && now >= retry_at_) dial(now);
  if (!connection_) return kNever;  // the next request reconnects
  connection_->pump();
  while (connection_) {
    const auto frame = connection_->next();
    if (!frame) break;
    on_frame(*frame, now);
  }
  if (!connection_) return kNever;
  if (!connection_->failure()) {
    lost(connection_->failure(), now);
  } else if ((!accepted_ && now >= accept_by_) || (!waiting_.empty() && now >= waiting_.front().until)) {
    lost({ErrorCode::timed_out, "it does not answer"}, now);
  }
  if (!connection_) return kNever;
  connection_->flush();
  if (connection_->has_unread()) return now;
  return std::min(accepted_ ? kNever : accept_by_, waiting_.empty() ? kNever : waiting_.front().until);
}

void EmbeddedDirectory::on_frame(const Frame& frame, Time now) {
  Status wrong(ErrorCode::protocol_error, "it sent an unexpected frame");
  if (frame.type == FrameType::identity && !identified_) {
    const auto identity = Identity::read(frame.body);
    if (!identity) return lost(identity.status(), now);
    identified_ = true;
    return connection_->put(context_.identity(Intent::directory));
  }
  if (frame.type == FrameType::accept && identified_ && !accepted_) {
    accepted_ = true;
    failures_ = 0;
    for (const Request& request : queued_) put(request);
    return queued_.clear();
  }
  if (frame.type == FrameType::refuse) {
    const auto refuse = Refuse::read(frame.body);
    return lost(refuse ? Status(ErrorCode::unsupported, refuse->text) : refuse.status(), now);
  }
  if (frame.type == FrameType::answer && accepted_) {
    const auto answer = Answer::read(frame.body);
    if (answer) return on_answer(answer.value());
    wrong = answer.status();
  }
  lost(wrong, now);
}

void EmbeddedDirectory::on_answer(const Answer& answer) {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) { return each.id == answer.id; });
  if (found == waiting_.end()) return;
  waiting_.erase(found);
  switch (answer.verdict) {
    case Verdict::done: return answers_.answered(answer.id, answer.bytes);
    case Verdict::absent: return answers_.answered(answer.id, Status(ErrorCode::not_found, server_text(answer.bytes)));
    case Verdict::taken:
      return answers_.answered(answer.id, Status(ErrorCode::already_exists, server_text(answer.bytes)));
    case Verdict::refused: break;
  }
  answers_.answered(answer.id, Status(ErrorCode::access_denied, "the directory refused: " + server_text(answer.bytes)));
}

void EmbeddedDirectory::lost(Status why, Time now) {
  connection_.reset();
  accepted_ = false;
  queued_.clear();
  retry_at_ = after(now, context_.jittered(RemoteDirectoryLimits::pause_after(failures_++)));
  const bool final = why.code() == ErrorCode::authentication_failed || why.code() == ErrorCode::version_mismatch ||
                     why.code() == ErrorCode::unsupported;
  last_error_ = Status(final ? why.code() : ErrorCode::unreachable,
                       fmt::format("the directory at {}: {}", address_, why.message()));
  for (const Waiting& each : std::exchange(waiting_, {})) answers_.answered(each.id, last_error_);
  answers_.lost();
}

}  // namespace

std::unique_ptr<Directory> open_embedded_directory(const std::string& address, ControlContext& context,
                                                   Directory::Answers& answers) {
  return std::make_unique<EmbeddedDirectory>(address, context, answers);
}

}  // namespace fairway::control

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "control/connection.h"
#include "control/directory.h"
#include "control/directory_bodies.h"
#include "control/server_text.h"

namespace fairway::control {
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

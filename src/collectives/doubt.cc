// Who is at fault when a peer is lost: the peer, or this rank, which may be cut off from all others.
#include <algorithm>

#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

namespace {

constexpr Timeout kAskNext{10'000};  // ranks that have not answered by then do not at once: others are asked, too
constexpr Timeout kPauseInDoubt{500};
constexpr int kAskFirst = 3, kAskMore = 4;  // times as many

}  // namespace

// Peers that fell silent at one time are lost within a quarter of the engine's peer_timeout: heartbeats come so often.
// Who has lost this rank has had such a doubt itself before it told the others.
void Communicator::State::begin_doubt(Running& running, const Fault& fault) {
  const Timeout most = engine.peer_timeout();
  const Time now = Clock::now();
  if (!running.waited) set_deadline(running, now);
  doubt_ = Doubt{fault, after(now, fault.status.code() == ErrorCode::stale_incarnation ? most : most / 2)};
  look_in_doubt(running, false);
}

void Communicator::State::ask_more() {
  const int most = std::min(size() - 1, std::max(kAskFirst, doubt_->asked * kAskMore));
  Words words;
  Status status;
  for (int behind = 1; behind <= most; ++behind) {
    const int other = (rank() + behind) % size();
    if (!alarms.gone(other) || other == doubt_->fault.rank) continue;
    const bool answered = lanes.read(other, words, status);
    if (behind > doubt_->asked || !answered) lanes.ask(other);  // an answer of before says nothing
  }
  doubt_->asked = most;
}

std::vector<Hearing> Communicator::State::hearings() {
  std::vector<Hearing> found(static_cast<std::size_t>(size()));
  const auto lost_as = [](ErrorCode code) {
    if (code == ErrorCode::closed || code == ErrorCode::cancelled) return Hearing::left;
    return code == ErrorCode::stale_incarnation ? Hearing::lost_us : Hearing::lost;
  };
  for (int other = 0; other < size(); ++other) {
    Hearing& one = found[static_cast<std::size_t>(other)];
    const int behind = (other - rank() + size()) % size();
    Words words;
    Status status;
    if (other == doubt_->fault.rank) {
      one = lost_as(alarms.gone(other) ? doubt_->fault.status.code() : alarms.gone(other).code());
    } else if (!alarms.gone(other)) {
      one = lost_as(alarms.gone(other).code());
    } else if (behind <= doubt_->asked && lanes.read(other, words, status) && status) {
      one = Hearing::answers;
    }
  }
  return found;
}

void Communicator::State::look_in_doubt(Running& running, bool may_wait) {
  if (!hear(running.number())) return doubt_.reset();
  const Time now = Clock::now();
  if (now >= doubt_->asks_next) {
    (void)engine.poll({});
    ask_more();
    doubt_->asks_next = now + kAskNext;
  }
  std::vector<std::string> names;
  for (const Member& member : lanes.members()) names.push_back(member.name);
  const bool is_over = now >= doubt_->until || stop.stop_requested();
  auto found = blame_lost(hearings(), names, rank(), doubt_->fault.rank, is_over);
  if (!found && now >= running.deadline)
    found = Blame{-1, "no other rank has answered since: this one may be cut off from them"};
  if (!found) return may_wait ? lanes.pause(kPauseInDoubt) : void();
  Fault fault = std::move(doubt_->fault);
  doubt_.reset();
  if (!found->text.empty()) {
    const std::string& lost = names[static_cast<std::size_t>(fault.rank)];
    std::string what = fault.status.message();
    if (what.find(lost) == std::string::npos) what = lost + ": " + what;
    const ErrorCode code = found->rank == rank() ? ErrorCode::link_failed : fault.status.code();
    fault = {found->rank, Status(code, found->text + ": " + what)};
  }
  fail_by(running, fault);
}

}  // namespace fairway

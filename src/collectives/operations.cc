// The operations of a communicator: started, run one after the other, collected.
#include <algorithm>

#include <fmt/format.h>

#include "collectives/host/schedule.h"
#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::size_t kMostOutcomes = 4096;
constexpr Timeout kSlice{10'000};  // how long a rank waits before it looks around
// How long a rank that has its results waits for what it sent to arrive: its caller may compute next, or end, and
// others wait for it. No longer, because the word that it arrived may come from a rank that computes.
constexpr Timeout kSettle{2'000};
constexpr unsigned kEngineTurn = 64;  // operations

}  // namespace

Algorithm Communicator::State::chosen(const Collective& call) const {
  if (call.algorithm != Algorithm::automatic) return call.algorithm;
  const std::uint64_t bytes = call.count * width_of(call);
  if (!is_ordered(call))
    if (const Algorithm found = ways.fastest(call.kind, all_bytes(call.kind, bytes, size()));
        found != Algorithm::automatic)
      return found;
  return choose(call.kind, size(), bytes, piece_of(call), costs, is_ordered(call), near);
}

// An element is never cut.
std::uint64_t Communicator::State::piece_of(const Collective& call) const {
  return std::max<std::uint64_t>(piece_bytes, width_of(call));
}

// An operation like the last one is the last one once more: nothing is chosen or laid out again.
Result<std::unique_ptr<Running>> Communicator::State::prepare(const Collective& call) {
  if (spare_ && spare_->has_shape_of(call)) {
    bool again = spare_->has_memory_of(call);
    if (!again) {
      if (Status status = check(call, rank(), size()); !status) return status.with_context(to_string(call.kind));
      again = lies_in_place(call, rank(), size()) == spare_->is_in_place();
    }
    if (again) {
      spare_->again(call, started + 1);
      return std::move(spare_);
    }
  }
  if (Status status = check(call, rank(), size()); !status) return status.with_context(to_string(call.kind));
  if (width_of(call) > lanes.slot_bytes())
    return Status(ErrorCode::invalid_argument, fmt::format("{}: custom.element_bytes is {}, more than slot_bytes, {}",
                                                           to_string(call.kind), width_of(call), lanes.slot_bytes()));
  Shape shape = shape_of(call, chosen(call), rank(), size(), piece_of(call));
  shape.groups = groups;
  if (near.groups > 1) shape.near_piece_bytes = std::max<std::uint64_t>(near.piece, width_of(call));
  Schedule schedule;
  if (spare_) schedule = spare_->take_schedule();
  spare_.reset();
  make_schedule_along(order, shape, schedule);
  return std::make_unique<Running>(call, shape, started + 1, std::move(schedule));
}

Result<OperationId> Communicator::State::enqueue(const Collective& call) {
  if (!engine.is_open()) return check_open();
  if (!failure.status || aborted.load(std::memory_order_relaxed)) return hear();
  if (queue_.size() + outcomes_.size() >= kMostOutcomes)
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("{} operations were started and not waited for", kMostOutcomes));
  auto made = prepare(call);
  if (!made) return made.status();
  queue_.push_back(std::move(*made));
  return OperationId{++started};
}

Result<OperationId> Communicator::State::start(const Collective& call) {
  auto id = enqueue(call);
  if (id && queue_.size() == 1) step(false);
  return id;
}

// The last one in the queue, and so the last outcome.
Status Communicator::State::run(const Collective& call) {
  const auto id = enqueue(call);
  if (!id) return id.status();
  while (!queue_.empty()) step(true);
  Status status = std::move(outcomes_.back().second);
  outcomes_.pop_back();
  return status;
}

bool Communicator::State::is_waiting(std::uint64_t number) const {
  return std::any_of(queue_.begin(), queue_.end(), [number](const auto& one) { return one->number() == number; });
}

bool Communicator::State::test(OperationId id) {
  (void)check_open();
  if (!is_waiting(id.number)) return true;
  (void)engine.poll({});
  step(false);
  return !is_waiting(id.number);
}

Status Communicator::State::wait(OperationId id) {
  (void)check_open();
  while (is_waiting(id.number)) step(true);
  const auto found =
      std::find_if(outcomes_.begin(), outcomes_.end(), [id](const auto& one) { return one.first == id.number; });
  if (found == outcomes_.end())
    return {ErrorCode::not_found,
            fmt::format("operation {} was never started, or its outcome was collected before", id.number)};
  Status status = std::move(found->second);
  outcomes_.erase(found);
  return status;
}

void Communicator::State::begin(Running& running) {
  running.begun = true;
  if (sends_in_place) running.send_in_place(lanes);
  running.enter(lanes);
  tell(lanes.words().operation, running.number());
  progress.entered(running.number(), running.kind());
  if (!lanes.all_mapped()) set_deadline(running, Clock::now());
}

// What the others stored before they gave up still lies in this rank's memory: with it alone an operation would end
// well here that has failed for them. By the other way a rank that enters waits for its own writes, and looks
// meanwhile.
bool Communicator::State::look_before(Running& running) {
  const Time now = coarse_now();
  if (now - looked_ < kSlice) return true;
  looked_ = now;
  (void)engine.poll({});
  look(running, {});
  return failure.status.is_ok() && !doubt_;
}

void Communicator::State::set_deadline(Running& running, Time now) const {
  running.waited = true;
  const Timeout timeout = timeout_of(running.timeout());
  running.deadline = after(now, timeout);
  if (running.deadline == Time::max()) return;
  // Before the deadline this rank reads twice what the others tell of themselves.
  const Timeout grace = std::min<Timeout>(timeout / 4, std::chrono::milliseconds(500));
  running.first_look = running.deadline - grace;
  running.second_look = running.deadline - grace / 2;
}

void Communicator::State::step(bool may_wait) {
  if (aborted.load(std::memory_order_relaxed)) return (void)hear();
  Running& running = *queue_.front();
  if (doubt_) return look_in_doubt(running, may_wait);
  if (!running.begun) {
    if (timeout_of(running.timeout()).count() <= 0)
      return fail(running, {rank(), {ErrorCode::deadline_exceeded, "its timeout had passed when this rank called it"}});
    begin(running);
    if ((lanes.any_mapped() || running.is_local()) && !look_before(running)) return;
    if (heard_ && !hear(running.number())) return;
  }
  Words& words = lanes.words();
  for (;;) {
    if (aborted.load(std::memory_order_relaxed)) return (void)hear();
    tell(words.steps, words.steps + 1);
    Blocked blocked;
    if (const Fault fault = running.advance(lanes, blocked); !fault.status) return fail(running, fault);
    if (blocked.on == Blocked::On::nothing) {
      if (running.looks_last && !hear(running.number())) return;
      return finish_front(running.release(engine));
    }
    if (may_wait && lanes.comes_at_once(blocked)) continue;
    const Time now = Clock::now();
    if (!running.waited) set_deadline(running, now);  // mapped lanes: until now it has only looked at memory
    tell(words.waits_for, blocked.peer);
    progress.waits(blocked.peer, running.step(), running.steps());
    if (running.has_results() && running.is_released()) {
      if (running.settles_at_once()) (void)engine.poll({});  // what it sent leaves
      if (running.settled == Time::max()) running.settled = running.settles_at_once() ? now : now + kSettle;
      if (now >= running.settled) {
        if (running.looks_last && !hear(running.number())) return;
        return finish_front({});
      }
    }
    if (now - looked_ >= kSlice || now >= running.next_look()) {
      looked_ = now;
      look(running, blocked);
      if (!failure.status || doubt_) return;
    }
    if (!may_wait) return;
    int peer = -1;
    const Timeout most = running.has_results() ? kSettle : kSlice;
    if (Status status = lanes.wait(blocked, std::min(most, std::max(until(running.next_look()), Timeout{1})), peer);
        !status)
      return fail(running, {peer, status});
  }
}

void Communicator::State::finish_front(const Status& status) {
  if (queue_.front()->waited) tell(lanes.words().waits_for, -1);
  progress.ended();
  last_ended.store(queue_.front()->number(), std::memory_order_relaxed);
  outcomes_.emplace_back(queue_.front()->number(), status);
  spare_ = std::move(queue_.front());
  spare_->free_much();
  queue_.pop_front();
  // Messages between mapped zones need no engine, but others do: their alarms, and what the program does.
  if (lanes.any_mapped() && ++ended_ % kEngineTurn == 0) (void)engine.poll({});
}

Status Communicator::State::check_open() {
  if (engine.is_open()) return aborted.load(std::memory_order_relaxed) ? hear() : Status();
  lanes.forget();
  const std::uint64_t number = queue_.empty() ? started : queue_.front()->number();
  end({-1, number, "", Status(ErrorCode::closed, "the engine was closed")});  // unless it has failed before
  return failure.status;
}

Status Communicator::State::may_start() {
  if (Status open = check_open(); !open) return open;
  return failure.status;
}

// A program that enqueues on streams may wait in no other call for long: here its engine has its turn, which hears of
// ranks that are gone and ends the mappings that kernels look at.
Status Communicator::State::heard() {
  (void)engine.poll({});
  return hear();
}

Status Communicator::State::give_up(CollectiveFailure why) {
  if (!failure.status) return failure.status;
  alarms.raise({why.rank, why.operation, why.status.code(), false, why.phase, why.status.message()});
  end(std::move(why));
  return failure.status;
}

// What the group ends with ends every operation that was started.
void Communicator::State::end(CollectiveFailure why) {
  if (!failure.status) return;
  failure = std::move(why);
  while (!queue_.empty()) {
    const Status released = queue_.front()->release(engine);
    finish_front(released ? failure.status : released.with_context(failure.status.to_string()));
  }
}

void Communicator::State::fail(Running& running, const Fault& fault) {
  if (!hear(running.number())) return;  // what the peer told before may say more than that a message could not be sent
  const ErrorCode code = fault.status.code();
  const bool lost =
      code == ErrorCode::peer_dead || code == ErrorCode::stale_incarnation || code == ErrorCode::link_failed;
  if (lost && fault.rank >= 0 && fault.rank != rank()) return begin_doubt(running, fault);
  fail_by(running, fault);
}

void Communicator::State::fail_by(const Running& running, const Fault& fault) {
  CollectiveFailure why;
  why.rank = fault.rank;
  why.operation = running.number();
  why.phase = running.phase();
  const std::string cause = fault.status.message();
  const bool named = fault.rank < 0 || cause.find(name_of(fault.rank)) != std::string::npos;
  const std::string text = fmt::format("operation {} ({}), {}: {}{}{}", why.operation, to_string(running.kind()),
                                       why.phase, named ? "" : name_of(fault.rank), named ? "" : ": ", cause);
  why.status = Status(fault.status.code(), text);
  if (fault.rank >= 0) why.status = why.status.with_peer(name_of(fault.rank));
  (void)give_up(std::move(why));
}

void Communicator::State::observe(bool first) {
  observed_.resize(static_cast<std::size_t>(size()));
  observed_steps_.resize(observed_.size());
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    Observed& one = observed_[static_cast<std::size_t>(other)];
    std::uint64_t& steps = observed_steps_[static_cast<std::size_t>(other)];
    Words words;
    Status status;
    const bool answered = lanes.read(other, words, status) && status;
    if (first) one = {};
    one.asked = true;
    one.gone = !alarms.gone(other);
    if (!answered) continue;
    if (!first) one.moves = !one.answers || words.steps != steps;
    one.answers = true;
    one.operation = words.operation;
    one.waits_for = words.waits_for;
    steps = words.steps;
  }
}

Fault Communicator::State::deadline_fault(const Running& running, int waits_for) {
  if (running.looked_once) {
    observe(!running.looked_twice);
    if (!running.looked_twice)  // it is not known who stands still
      for (Observed& one : observed_) one.moves = true;
  } else {
    // What was read before this operation says nothing of it.
    observed_.assign(static_cast<std::size_t>(size()), {});
    for (int other = 0; other < size(); ++other)
      if (other != rank()) observed_[static_cast<std::size_t>(other)].gone = !alarms.gone(other);
  }
  std::vector<std::string> names;
  for (const Member& member : lanes.members()) names.push_back(member.name);
  const Blame found = blame(observed_, names, rank(), running.number(), waits_for);
  return {found.rank, {ErrorCode::deadline_exceeded, "the timeout passed: " + found.text}};
}

Status Communicator::State::hear(std::uint64_t operation) {
  if (!failure.status) return failure.status;
  if (aborted.load(std::memory_order_acquire)) {
    const std::uint64_t number = queue_.empty() ? started : queue_.front()->number();
    const std::string phase = queue_.empty() ? "" : queue_.front()->phase();
    end({rank(), number, phase, Status(ErrorCode::cancelled, "this rank has aborted the communicator")});
    return failure.status;
  }
  if (auto alarm = alarms.look(); alarm && (!heard_ || alarm->operation < heard_->operation)) heard_ = std::move(alarm);
  if (!heard_ || heard_->operation > operation) return {};
  end(failure_of(*heard_));
  return failure.status;
}

// A rank that another one hears nothing of may live, where one direction between them is cut. This one hears it,
// perhaps, and tells it, since who found it cannot; and it says so of itself.
CollectiveFailure Communicator::State::failure_of(const Alarm& alarm) {
  const bool lost = alarm.code == ErrorCode::peer_dead && alarm.by != alarm.rank;
  if (lost && alarm.rank == rank())
    return {rank(), alarm.operation, alarm.phase,
            Status(ErrorCode::link_failed,
                   fmt::format("this rank lives, but {} hears nothing of it: what it sends there does not arrive: {}",
                               name_of(alarm.by), alarm.text))
                .with_peer(name_of(alarm.by))};
  if (lost && alarm.rank >= 0 && alarms.gone(alarm.rank)) alarms.pass_on(alarm, alarm.rank);
  Status status(alarm.code, alarm.text);
  if (alarm.rank >= 0) status = status.with_peer(name_of(alarm.rank));
  return {alarm.rank, alarm.operation, alarm.phase, std::move(status)};
}

// Another thread may be inside a call: it sees the word, and nothing here is its own.
void Communicator::State::abort() {
  if (aborted.exchange(true, std::memory_order_acq_rel) || !engine.is_open()) return;
  gpu.stop();
  alarms.raise_beside(own_abort());
}

collectives::Alarm Communicator::State::own_abort() const {
  Alarm alarm;
  alarm.rank = rank();
  alarm.operation = last_ended.load(std::memory_order_relaxed) + 1;
  alarm.code = ErrorCode::cancelled;
  alarm.aborts = true;
  alarm.text = fmt::format("{} has aborted the communicator", name_of(rank()));
  return alarm;
}

// A rank that comes late looks at its first step, when it may not have read yet what the others told it meanwhile. Once
// what it sent has arrived it has: a peer's answer comes behind all that the peer has said before.
void Communicator::State::look(Running& running, const Blocked& blocked) {
  running.looks_last = true;
  const auto ask_all = [this] {
    for (int other = 0; other < size(); ++other)
      if (other != rank() && alarms.gone(other)) lanes.ask(other);
  };
  if (!hear(running.number())) return;
  if (parent != nullptr)
    if (Status over = parent->hear(); !over) return fail(running, {-1, over});
  // While the ranks join, one that misses a dead rank gives up without a word: nobody waits for it.
  if (stop.stop_requested()) return fail(running, {-1, {ErrorCode::cancelled, "joining was stopped"}});
  for (int other = 0; other < size() && !agreed; ++other)
    if (const Status& why = alarms.gone(other); !why && why.code() != ErrorCode::closed)
      return fail(running, {other, why});
  if (const int peer = blocked.peer; blocked.waits_for_peer() && !alarms.gone(peer)) {
    // What it sent before it went has arrived by now. A transfer to it ends by itself.
    Blocked still;
    if (const Fault fault = running.advance(lanes, still); !fault.status) return fail(running, fault);
    if (still.waits_for_peer() && still.peer == peer) return fail(running, {peer, alarms.gone(peer)});
    return;
  }
  const Time now = Clock::now();
  // A rank that had no turn until its deadline asks late, rather than name nobody.
  const auto grace = running.second_look - running.first_look;
  const bool late = now >= running.deadline && !running.looked_once && grace >= kSlice;
  if (now >= running.deadline && !late) return fail(running, deadline_fault(running, blocked.peer));
  if (now >= running.first_look && !running.looked_once) {
    running.looked_once = true;
    ask_all();
    if (late) {
      running.second_look = now + grace;
      running.deadline = running.second_look + grace;
    }
  } else if (now >= running.second_look && !running.looked_twice) {
    running.looked_twice = true;
    observe(true);
    ask_all();
  }
  lanes.ask_rest(kSlice);
}

}  // namespace fairway

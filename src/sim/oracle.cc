#include "sim/oracle.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "sim/host.h"

namespace fairway::sim {

namespace {
std::string name_of(Operation operation) {
  static constexpr const char* kNames[] = {"write", "read", "send", "receive", "fetch_add", "compare_swap"};
  return kNames[static_cast<unsigned>(operation)];
}
bool one_sided(Operation operation) {
  return operation == Operation::write || operation == Operation::read;
}
}  // namespace

Application::Acquaintance* Application::knows(const Application& other) {
  for (Acquaintance& known_one : known)
    if (known_one.who == &other) return &known_one;
  return nullptr;
}

Job& Oracle::new_job() {
  Job& job = jobs_.emplace_back();
  job.oracle = this;
  job.number = static_cast<std::uint32_t>(jobs_.size() - 1);
  return job;
}

void Oracle::fail(const std::string& what) {
  simulation_.note(Simulation::kNoHost, [&] { return "BROKEN: " + what; });
  if (++failures_ > 5) return;
  failure_ += std::to_string(simulation_.now() / kMicrosecond) + " us: " + what + "\n";
}

std::string Oracle::describe(const Job& job) const {
  return "#" + std::to_string(job.number) + " " + name_of(job.operation) + " " + std::to_string(job.length) +
         " bytes " + job.from->name + " -> " + job.to->name;
}

void Oracle::on_completion(const Completion& completion, void* job) {
  Job& its = *static_cast<Job*>(job);
  its.oracle->completed(its, completion);
}

void Oracle::completed(Job& job, const Completion& completion) {
  if (job.from->dead) return;  // a dead process sees nothing
  simulation_.note(job.from->host->index(), [&] { return describe(job) + " ends: " + completion.status.to_string(); });
  simulation_.mix(job.number + (static_cast<std::uint64_t>(completion.status.code()) << 32));
  if (!job.accepted) fail(describe(job) + " completed before it was accepted");
  if (job.completed) return fail(describe(job) + " completed twice");
  job.completed = true;
  job.status = completion.status;
  if (completion.user_data != &job) fail(describe(job) + " came back with another user's data");
  if (completion.status) {
    ++succeeded;
    if (job.after != nullptr && !(job.after->completed && job.after->status))
      fail(describe(job) + " ended before #" + std::to_string(job.after->number) + ", which it comes after");
    if (job.notify == NotifyKind::event && !job.to->dead) drain_notifications(*job.to);
  } else if (job.after != nullptr && job.after->completed && !job.after->status && job.notified != 0) {
    fail(describe(job) + " was notified though #" + std::to_string(job.after->number) + " failed");
  }
  if (job.operation == Operation::receive && completion.status) check_message(job, completion.bytes);
  if (job.operation == Operation::fetch_add && completion.status) check_sum(job, completion.old_value);
  settle_memory(job, completion.status);
  check_memory(*job.from);
  if (!job.to->dead) check_memory(*job.to);
}

// The bytes of each piece are there, everything between them is as it was, and the source has not changed.
void Oracle::check_moved(Job& job, Arena& source, const Arena::Range& from, Arena& target, const Arena::Range& to) {
  const bool is_read = job.operation == Operation::read;
  std::array<bool, 1 << 14> covered{};
  for (const Job::Piece& piece : job.pieces) {
    const std::uint32_t at = to.begin + (is_read ? piece.local : piece.remote);
    const std::uint32_t origin = from.begin + (is_read ? piece.remote : piece.local);
    for (std::uint32_t i = 0; i < piece.length; ++i) {
      covered[at - to.begin + i] = true;
      if (target.data()[at + i] == pattern(from.seed, origin + i)) continue;
      return fail(describe(job) + " is ok, but byte " + std::to_string(at + i) + " is not there");
    }
  }
  for (std::uint32_t i = 0; i < to.length; ++i)
    if (!covered[i] && target.data()[to.begin + i] != pattern(to.seed, to.begin + i))
      return fail(describe(job) + " touched byte " + std::to_string(to.begin + i) + ", which is not of it");
  if (source.differs(from) != from.length) fail(describe(job) + " changed its source");
}

// A message carries its job's number and goes on with a pattern of it.
void Oracle::check_message(Job& job, std::uint64_t bytes) {
  if (bytes > job.length) return fail(describe(job) + " says that it got more than fits");
  if (bytes < 4) return;
  std::uint32_t number = 0;
  const std::byte* at = job.local->data() + job.local_range.begin;
  std::memcpy(&number, at, 4);
  if (number >= jobs_.size() || jobs_[number].operation != Operation::send)
    return fail(describe(job) + " got bytes that nobody sent");
  Job& sent = jobs_[number];
  if (sent.to != job.from || sent.from != job.to || sent.tag != job.tag || sent.length != bytes)
    return fail(describe(job) + " got " + describe(sent));
  if (++sent.notified > 1) fail(describe(sent) + " was received twice");
  for (std::uint32_t i = 4; i < bytes; ++i)
    if (at[i] != pattern(number, i)) return fail(describe(job) + " got wrong bytes of " + describe(sent));
  for (std::uint32_t i = static_cast<std::uint32_t>(bytes); i < job.local_range.length; ++i)
    if (at[i] != pattern(job.local_range.seed, job.local_range.begin + i))
      return fail(describe(job) + " touched memory behind the message");
  // In submission order per peer and tag: a later send was not received before an earlier receive ends.
  for (const Job& other : jobs_)
    if (other.operation == Operation::receive && other.from == job.from && other.to == job.to && other.tag == job.tag &&
        other.number > job.number && other.completed && other.status && other.operand != 0 &&
        other.operand - 1 < number)
      fail(describe(job) + " got a message that was sent after that of " + describe(other));
  job.operand = number + 1u;
}

// The cell held painted bytes; now it holds their sum with the addend, and the old value is the paint.
void Oracle::check_sum(Job& job, std::uint64_t old_value) {
  if (!job.bytes_matter || job.remote->given_up || job.to->dead) return;
  std::uint64_t before = 0, now = 0;
  for (std::uint32_t i = 0; i < 8; ++i)
    before |= std::to_integer<std::uint64_t>(pattern(job.remote_range.seed, job.remote_range.begin + i)) << (8 * i);
  std::memcpy(&now, job.remote->data() + job.remote_range.begin, 8);
  if (now != before + job.operand) fail(describe(job) + " is ok, but the cell does not hold the sum");
  if (old_value != before) fail(describe(job) + " returned an old value that never was");
}

// Who owns which bytes now. Whatever is painted anew here is what a late frame would spoil.
void Oracle::settle_memory(Job& job, const Status& status) {
  if (!job.bytes_matter) return;
  job.bytes_matter = false;
  Arena::Range& near = job.local_range;
  Arena::Range& far = job.remote_range;
  const bool far_lives = job.remote != nullptr && !job.remote->given_up && !job.to->dead;
  if (status && one_sided(job.operation) && job.length != 0 && far_lives && !job.local->given_up) {
    if (job.operation == Operation::write)
      check_moved(job, *job.local, near, *job.remote, far);
    else
      check_moved(job, *job.remote, far, *job.local, near);
  }
  const bool changes_far = job.operation == Operation::write || job.operation == Operation::fetch_add;
  if (!status && changes_far && job.length != 0 && far_lives) {
    if (status.effect() == Effect::not_applied && job.remote->differs(far) != far.length)
      fail(describe(job) + " says not_applied, but byte " + std::to_string(job.remote->differs(far)) + " changed");
    if (status.effect() == Effect::partial) job.remote->adopt(far);
    if (status.effect() == Effect::unknown) job.remote->quarantine(far);
    if (status.effect() != Effect::not_applied) far.length = 0;
  }
  if (job.local != nullptr && near.length != 0) job.local->give_back(near);
  if (job.remote != nullptr && far.length != 0) job.remote->give_back(far);
}

// The call's own promise, which may come before the completion is seen.
void Oracle::cancelled(Job& job, const Cancelled& result) {
  job.cancelled = true;
  simulation_.note(job.from->host->index(), [&] {
    return describe(job) + " cancelled: " + (result.fenced ? "fenced" : "not fenced, held by " + result.held_by);
  });
  if (!job.completed && !result.fenced && !job.from->dead && job.local != nullptr && job.bytes_matter) {
    job.local->quarantine(job.local_range);
    if (job.remote != nullptr) job.remote->quarantine(job.remote_range);
    job.bytes_matter = false;
  }
}

void Oracle::region_is_free(Application& app, Arena& arena) {
  for (Job& job : jobs_) {
    if (!job.bytes_matter || (job.local != &arena && job.remote != &arena) || !job.accepted || job.completed) continue;
    if (job.from == &app && job.local == &arena) fail(describe(job) + " goes on, though its memory was deregistered");
    // The peer's own range can no longer be told from what came back of it.
    job.bytes_matter = false;
    if (job.remote == &arena) job.remote->give_back(job.remote_range);
    if (job.local != nullptr && job.local != &arena) job.local->quarantine(job.local_range);
  }
}

void Oracle::drain_notifications(Application& app) {
  if (!app.engine) return;
  std::array<Notification, 8> some;
  for (;;) {
    const std::size_t count = app.engine->poll_notifications(some);
    for (const Notification& one : std::span(some).first(count)) {
      if (one.immediate >= jobs_.size()) {
        fail(app.name + " was notified of " + std::to_string(one.immediate) + ", which nobody sent");
        continue;
      }
      Job& job = jobs_[one.immediate];
      simulation_.note(app.host->index(), [&] { return "notified of " + describe(job); });
      if (job.to != &app || job.notify != NotifyKind::event) fail(app.name + " was notified of " + describe(job));
      if (++job.notified > 1) fail(describe(job) + " notified twice");
      const bool same = one.message_bytes == job.message.size() &&
                        (job.message.empty() || std::memcmp(one.message, job.message.data(), job.message.size()) == 0);
      if (!same) fail(describe(job) + " brought a wrong message");
      // Before its completion the memory is not reused, so the bytes can be looked at: all of them must be there.
      if (job.bytes_matter && !job.completed && job.operation == Operation::write && !job.remote->given_up &&
          job.length != 0)
        check_moved(job, *job.local, job.local_range, *job.remote, job.remote_range);
    }
    if (count < some.size()) return;
  }
}

void Oracle::check_memory(Application& app) {
  if (app.dead) return;
  for (std::size_t i = 0; i < app.arenas.size(); ++i)
    if (const std::string what = app.arenas[i]->check(); !what.empty()) {
      fail(app.name + ", region " + std::to_string(i) + ": " + what);
      app.arenas[i]->given_up = true;  // once is enough
    }
}

void Oracle::check_order() {
  for (Job& job : jobs_) {
    if (!job.accepted || job.completed || job.after == nullptr || job.after->completed || !job.bytes_matter) continue;
    if (job.operation != Operation::write || job.to->dead || job.remote->given_up) continue;
    if (job.remote->differs(job.remote_range) != job.remote_range.length)
      fail(describe(job) + " began before #" + std::to_string(job.after->number) + " ended");
  }
}

void Oracle::check_counters(Application& app) {
  if (!app.engine || app.dead) return;
  for (std::uint32_t immediate = 0; immediate < kCounters; ++immediate) {
    std::uint64_t sure = 0, possible = 0;
    for (const Job& job : jobs_) {
      if (job.to != &app || job.notify != NotifyKind::counter || job.immediate != immediate || !job.accepted) continue;
      if (job.completed && job.status) ++sure;
      if (!job.completed || job.status || job.status.effect() != Effect::not_applied) ++possible;
    }
    const std::uint64_t counted = app.engine->counter(immediate);
    if (counted < sure || counted > possible)
      fail(app.name + " counted " + std::to_string(counted) + " notifications of " + std::to_string(immediate) +
           ", not " + std::to_string(sure) + (possible != sure ? " to " + std::to_string(possible) : ""));
  }
}

void Oracle::check_end(std::vector<std::unique_ptr<Application>>& applications) {
  for (Job& job : jobs_) {
    if (!job.accepted || job.from->dead) continue;
    if (!job.completed) fail(describe(job) + " never completed");
    if (job.notify == NotifyKind::event && job.completed && job.status && job.notified != 1 && !job.to->dead)
      fail(describe(job) + " was ok, its notification came " + std::to_string(job.notified) + " times");
  }
  for (const auto& app : applications) check_memory(*app);
}

}  // namespace fairway::sim

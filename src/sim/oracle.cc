#include "sim/oracle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "sim/host.h"

namespace fairway::sim {

namespace {
std::string name_of(Operation operation) {
  static constexpr const char* kNames[] = {"write", "read", "send", "receive", "fetch_add", "compare_swap"};
  return kNames[static_cast<unsigned>(operation)];
}
}  // namespace

Application::KnownPeer* Application::knows(const Application& other) {
  for (KnownPeer& known_one : known)
    if (known_one.application == &other) return &known_one;
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
  if (!job.accepted) fail(describe(job) + " completed before submit() accepted it");
  if (job.completed) return fail(describe(job) + " completed twice");
  job.completed = true;
  job.status = completion.status;
  const std::uint32_t garbled = job.garbled == nullptr ? 0 : fabric_.heal(job.garbled);
  coverage.garbled += garbled != 0;
  if (completion.status.code() == ErrorCode::checksum_mismatch) {
    ++coverage.mismatches;
    if (garbled == 0) fail(describe(job) + " reported a checksum mismatch, but no byte was corrupted");
    if (job.notified != 0) fail(describe(job) + " notified its target despite a checksum mismatch");
  }
  if (completion.user_data != &job) fail(describe(job) + " completed with the wrong user_data");
  if (completion.status) {
    ++succeeded;
    if (job.after != nullptr && !(job.after->completed && job.after->status))
      fail(describe(job) + " ended before #" + std::to_string(job.after->number) + ", which it was to follow");
    if (job.notify == NotifyKind::event && !job.to->dead) drain_notifications(*job.to);
  } else if (job.after != nullptr && job.after->completed && !job.after->status && job.notified != 0) {
    fail(describe(job) + " notified its target although #" + std::to_string(job.after->number) + " failed");
  }
  if (job.operation == Operation::receive && completion.status) check_message(job, completion.bytes);
  if (job.operation == Operation::fetch_add && completion.status) check_sum(job, completion.old_value);
  settle_memory(job, completion.status);
  check_memory(*job.from);
  if (!job.to->dead) check_memory(*job.to);
}

// A message starts with its job's number, followed by a pattern of that number.
void Oracle::check_message(Job& job, std::uint64_t bytes) {
  if (bytes > job.length) return fail(describe(job) + " reported more bytes than fit");
  if (bytes < 4) return;
  std::uint32_t number = 0;
  const std::byte* at = job.local->data() + job.local_range.begin;
  std::memcpy(&number, at, 4);
  if (number >= jobs_.size() || jobs_[number].operation != Operation::send)
    return fail(describe(job) + " received bytes that no job sent");
  Job& sent = jobs_[number];
  if (sent.to != job.from || sent.from != job.to || sent.tag != job.tag || sent.length != bytes)
    return fail(describe(job) + " got " + describe(sent));
  if (++sent.notified > 1) fail(describe(sent) + " was received twice");
  for (std::uint32_t i = 4; i < bytes; ++i)
    if (at[i] != pattern(number, i)) return fail(describe(job) + " received wrong bytes of " + describe(sent));
  for (std::uint32_t i = static_cast<std::uint32_t>(bytes); i < job.local_range.length; ++i)
    if (at[i] != pattern(job.local_range.seed, job.local_range.begin + i))
      return fail(describe(job) + " wrote memory past the message");
  // Per peer and tag in submission order: an earlier receive must not end after a later send was matched.
  for (const Job& other : jobs_)
    if (other.operation == Operation::receive && other.from == job.from && other.to == job.to && other.tag == job.tag &&
        other.number > job.number && other.completed && other.status && other.operand != 0 &&
        other.operand - 1 < number)
      fail(describe(job) + " received a message that was sent after that of " + describe(other));
  job.operand = number + 1u;
}

// The cell held its pattern. Now it must hold the pattern plus the operand, and the old value must be the pattern.
void Oracle::check_sum(Job& job, std::uint64_t old_value) {
  if (job.remote_range.length == 0 || job.remote->unusable || job.to->dead) return;
  std::uint64_t before = 0, now = 0;
  for (std::uint32_t i = 0; i < 8; ++i)
    before |= std::to_integer<std::uint64_t>(pattern(job.remote_range.seed, job.remote_range.begin + i)) << (8 * i);
  std::memcpy(&now, job.remote->data() + job.remote_range.begin, 8);
  if (now != before + job.operand)
    fail(describe(job) + " is ok, but the cell does not hold the sum of old value and operand");
  if (old_value != before) fail(describe(job) + " returned an old value that the cell never held");
}

void Oracle::check_order() {
  for (Job& job : jobs_) {
    if (!job.accepted || job.completed || job.after == nullptr || job.after->completed) continue;
    if (job.operation != Operation::write || job.to->dead || job.remote->unusable || job.remote_range.length == 0)
      continue;
    if (job.remote->differs(job.remote_range) != job.remote_range.length)
      fail(describe(job) + " started before #" + std::to_string(job.after->number) + " ended");
  }
}

void Oracle::check_end(std::vector<std::unique_ptr<Application>>& applications) {
  for (Job& job : jobs_) {
    if (!job.accepted || job.from->dead) continue;
    if (!job.completed) fail(describe(job) + " never completed");
    if (job.notify == NotifyKind::event && job.completed && job.status && job.notified != 1 && !job.to->dead)
      fail(describe(job) + " is ok, but its notification came " + std::to_string(job.notified) + " times");
  }
  for (const auto& app : applications) check_memory(*app);
}

// Checks what targets observe: events, counters, unexpected messages, the end of peers.

void Oracle::drain_notifications(Application& app) {
  if (!app.engine) return;
  std::array<Notification, 8> some;
  for (;;) {
    const std::size_t count = app.engine->poll_notifications(some);
    for (const Notification& one : std::span(some).first(count)) {
      const std::uint32_t number = one.immediate % kMaxJobs;
      if (number >= jobs_.size() || jobs_[number].immediate != one.immediate) {
        fail(app.name + " was notified of " + std::to_string(one.immediate) + ", which no job sent");
        continue;
      }
      Job& job = jobs_[number];
      simulation_.note(app.host->index(), [&] { return "notified of " + describe(job); });
      if (job.to != &app || job.notify != NotifyKind::event) fail(app.name + " was notified of " + describe(job));
      if (++job.notified > 1) fail(describe(job) + " notified twice");
      const bool same = one.message_bytes == job.message.size() &&
                        (job.message.empty() || std::memcmp(one.message, job.message.data(), job.message.size()) == 0);
      if (!same) fail(describe(job) + " carried a wrong message");
      // The memory is not reused before the completion, so all bytes must be there now.
      if (job.completed && job.status.code() == ErrorCode::checksum_mismatch)
        fail(describe(job) + " notified its target despite a checksum mismatch");
      if (!job.settled && !job.completed && job.remote_range.length != 0 && !job.remote->unusable && job.length != 0)
        check_moved(job, *job.local, job.local_range, *job.remote, job.remote_range);
    }
    if (count < some.size()) return;
  }
}

void Oracle::check_counters(Application& app) {
  if (!app.engine || app.dead) return;
  for (const std::uint32_t immediate : counter_values) {
    std::uint64_t sure = 0, possible = 0;
    for (const Job& job : jobs_) {
      if (job.to != &app || job.notify != NotifyKind::counter || job.immediate != immediate || !job.accepted) continue;
      if (job.completed && job.status) ++sure;
      const bool impossible =
          job.completed && !job.status &&
          (job.status.effect() == Effect::not_applied || job.status.code() == ErrorCode::checksum_mismatch);
      possible += !impossible;
    }
    const std::uint64_t counted = app.engine->counter(immediate);
    if (counted < sure || counted > possible)
      fail(app.name + " counted " + std::to_string(counted) + " notifications of " + std::to_string(immediate) +
           ", not " + std::to_string(sure) + (possible != sure ? " to " + std::to_string(possible) : ""));
  }
}

void Oracle::check_unexpected(Application& app) {
  // What a message counts in addition to its bytes (include/fairway/options.h).
  constexpr std::uint32_t kAnnouncement = 64;
  constexpr std::uint32_t kTravels = 400;  // a message up to this size travels with its announcement on any link
  std::map<std::pair<Application*, std::uint64_t>, std::uint64_t> handed_over;
  // From the newest to the oldest. Sends leave in order, so a send that is held back is newer than all that have left.
  // If the oldest were cancelled first, it would free space at the receiver, a held-back send would leave, and the sum
  // would count both.
  for (auto at = jobs_.rbegin(); at != jobs_.rend(); ++at) {
    Job& job = *at;
    if (job.from != &app || job.operation != Operation::send || !job.accepted || job.completed || job.to->dead)
      continue;
    const auto ended = app.engine->cancel(job.id, std::chrono::seconds(3));
    if (!ended) continue;
    cancelled(job, *ended);
    if (job.length == 0 || job.length > kTravels || job.checksum) continue;
    if (ended->far_side == Cancelled::Far::nothing) {
      ++coverage.sends_held_back;
      continue;
    }
    // A waiting receive may take one of them meanwhile and free its space.
    const auto takes = [&](const Job& other) {
      return other.operation == Operation::receive && other.from == job.to && other.to == &app && other.accepted &&
             !other.completed;
    };
    if (std::ranges::any_of(jobs_, takes)) continue;
    std::uint64_t& room = handed_over[{job.to, std::uint64_t{job.peer.generation} << 32 | job.peer.slot}];
    room += kAnnouncement + job.length;
    if (room > job.to->options.unexpected_bytes_per_peer)
      fail(describe(job) + " waits at its target, which by now has " + std::to_string(room) +
           " unexpected bytes and has room for " + std::to_string(job.to->options.unexpected_bytes_per_peer));
  }
}

void Oracle::peer_went(const Application& app, const PeerEvent& event) {
  if (event.reason.code() == ErrorCode::protocol_error &&
      event.reason.message().find("the peer sent") != std::string::npos)
    fail(app.name + " and " + event.name +
         " disconnected over a protocol error that neither can make: " + event.reason.to_string());
}

void Oracle::garble(Job& job, std::uint32_t offset) {
  job.garbled = job.local->data() + job.local_range.begin + offset;
  fabric_.garble(job.garbled);
}

void Oracle::heal(Job& job) {
  if (job.garbled != nullptr) (void)fabric_.heal(job.garbled);
}

}  // namespace fairway::sim

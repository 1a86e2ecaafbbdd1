#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "sim/oracle.h"

// Checks what targets observe: events, counters, unexpected messages, the end of peers.
namespace fairway::sim {

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
    if (std::any_of(jobs_.begin(), jobs_.end(), takes)) continue;
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

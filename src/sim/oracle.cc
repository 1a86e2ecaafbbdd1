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

}  // namespace fairway::sim

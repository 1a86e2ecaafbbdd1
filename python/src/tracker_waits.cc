#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <poll.h>

#include "transfers.h"

// The tracker's waits for transfers.
namespace fairway::python {
namespace {

// Another thread collects what this one waits for, and tells no more than that it has.
void pause() {
  const Unlocked meanwhile;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void check_not_queued(const Work& work) {
  if (work.queue != nullptr && work.left > 0)
    raise(ErrorCode::invalid_argument, "the transfer names a queue, whose poll() and wait() alone give it");
}

bool Tracker::wait(const std::shared_ptr<Work>& work, const Deadline& deadline) {
  if (work->left == 0) return true;
  check_not_queued(*work);
  if (work->polled) return wait_polled(*work, deadline);
  Engine& engine = session_->engine();
  while (work->collecting) {  // another thread collects, and will notify
    pause();
    handle_signals();
    if (deadline.passed()) return work->left == 0;
  }
  LetGo over;
  while (work->left > 0) {
    const std::span ids = std::span(work->ids).subspan(work->next);
    std::vector<Completion> completions(ids.size());
    work->collecting = true;
    const Status status = unlocked([&] {  // all by one wait, which ends in time for Ctrl-C
      if (ids.size() > 1) return engine.wait_all(ids, completions, deadline.slice());
      auto done = engine.wait(ids[0], deadline.slice());
      if (done) completions[0] = std::move(*done);
      return done.status();
    });
    work->collecting = false;
    if (status.code() != ErrorCode::timed_out) {
      for (Completion& one : completions) {
        if (!status && one.id == TransferId{}) one = unheard({}, status);  // nothing was stored there
        work->completed(work->next++, one, over);
      }
      return true;
    }
    work->collect(over);
    if (work->left == 0) return true;
    handle_signals();
    if (deadline.passed()) return false;
  }
  return true;
}

void Tracker::wait_readable(Timeout most) {
  pollfd one{session_->engine().fd(), POLLIN, 0};
  const Unlocked meanwhile;
  (void)::poll(&one, 1, static_cast<int>(std::min<std::int64_t>((most.count() + 999) / 1000, 5)));
}

bool Tracker::wait_polled(const Work& work, const Deadline& deadline) {
  while (work.left > 0) {
    if (poll() > 0) continue;
    if (work.left == 0) return true;
    wait_readable(deadline.slice());
    handle_signals();
    if (deadline.passed()) return false;
  }
  return true;
}

std::size_t Tracker::wait_any(std::span<const std::shared_ptr<Work>> all, const Deadline& deadline) {
  for (;;) {
    const bool polls =
        std::any_of(all.begin(), all.end(), [](const auto& one) { return one->left > 0 && one->polled; });
    if (polls) poll();
    LetGo over;
    const auto ended = std::find_if(all.begin(), all.end(), [](const auto& one) { return one->left == 0; });
    for (auto one = all.begin(); ended != all.end(); ++one) {  // perhaps one before it has ended, too
      if (one != ended && !(*one)->polled) (*one)->collect(over);
      if ((*one)->left == 0) return static_cast<std::size_t>(one - all.begin());
    }
    if (collect_any(all, polls, deadline.slice())) continue;
    handle_signals();
    if (deadline.passed())
      raise(ErrorCode::timed_out, "all of the transfers are still in flight; wait again, or cancel them");
  }
}

// Waits until a request of them has completed, `most` at the longest, or for less while something else must be looked
// at, too.
bool Tracker::collect_any(std::span<const std::shared_ptr<Work>> all, bool polls, Timeout most) {
  constexpr Timeout kShort = std::chrono::milliseconds(1);
  LetGo over;  // behind what shows that they are being collected
  std::vector<Work*> works;
  std::vector<TransferId> ids;  // of each of them the first that was not collected
  for (const auto& one : all) {
    if (one->polled) continue;
    if (one->collecting) {
      polls = true;
      continue;
    }
    works.push_back(one.get());
    ids.push_back(one->ids[one->next]);
  }
  if (polls) most = std::min(most, kShort);
  if (works.empty()) {
    wait_readable(most);
    return false;
  }
  for (Work* const work : works) work->collecting = true;
  const auto done = unlocked([&] { return session_->engine().wait_any(ids, most); });
  for (Work* const work : works) work->collecting = false;
  if (done.status().code() == ErrorCode::timed_out) return false;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (!done || ids[i] == done->id)
      works[i]->completed(works[i]->next++, done ? *done : unheard(ids[i], done.status()), over);
  return true;
}

}  // namespace fairway::python

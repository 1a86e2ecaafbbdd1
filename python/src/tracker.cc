#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include <poll.h>

#include "transfers.h"

namespace fairway::python {

// If asyncio was never imported, no event loop runs. Importing it here would delay the first transfer by 30 ms.
bool in_event_loop() {
  static PyObject* running = nullptr;
  if (running == nullptr) {
    PyObject* const events = PyDict_GetItemString(PyImport_GetModuleDict(), "asyncio.events");
    if (events == nullptr) return false;
    running = PyObject_GetAttrString(events, "_get_running_loop");
    if (running == nullptr) {
      PyErr_Clear();  // another thread is importing it
      return false;
    }
  }
  const auto loop = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(running));
  if (!loop) throw py::error_already_set();
  return !loop.is_none();
}

// ---- Work ----

void Work::completed(std::size_t index, const Completion& completion, LetGo& over) {
  bytes += completion.bytes;
  old_value = completion.old_value;
  if (!completion.status) failed.push_back({index, completion.status});
  if (--left == 0 && !submitting) over.push_back(std::exchange(pins, {}));
}

TransferId Work::first() const {
  if (ids.empty()) raise(ErrorCode::invalid_argument, "none of the transfer's requests was taken");
  return ids[0];
}

void Work::collect(LetGo& over) {
  Engine& engine = tracker->session().engine();
  while (left > 0 && !collecting) {
    const TransferId id = ids[next];
    const auto done = engine.wait(id, Timeout(0));
    if (!done && done.status().code() == ErrorCode::timed_out) return;
    completed(next++, done ? *done : Completion{id, done.status()}, over);
  }
}

Transfer::~Transfer() {
  if (work != nullptr && work->left > 0 && !work->polled) {
    const py::error_scope kept;
    work->tracker->abandon(std::move(work));
  }
}

// ---- Tracker ----

py::object Tracker::submit(std::span<PyRequest* const> requests, std::span<const py::object> keep) {
  if (requests.empty()) raise(ErrorCode::invalid_argument, "there are no requests to submit");
  Engine& engine = session_->engine();
  reap();
  auto work = std::make_shared<Work>();
  work->tracker = shared_from_this();
  work->polled = in_event_loop();
  for (const PyRequest* given : requests) work->polled = work->polled || !given->callback.is_none();
  std::vector<Request> made;
  made.reserve(requests.size());
  for (PyRequest* given : requests) {
    Request& request = made.emplace_back(given->request);
    request.options.notify.message = std::as_bytes(std::span(given->message));
    request.options.deliver = work->polled ? Deliver::to_poll : Deliver::to_wait;
    request.options.user_data = work.get();
    if (!given->callback.is_none()) work->callbacks.push_back(given->callback);
  }
  work->atomic = made[0].operation == Operation::fetch_add || made[0].operation == Operation::compare_swap;
  if (keep.empty())
    work->pins = std::move(requests[0]->pins);
  else
    work->pins.objects.assign(keep.begin(), keep.end());
  if (!requests[0]->stream.is_none() && keep.empty()) work->pins.objects.push_back(requests[0]->stream);
  work->ids.resize(made.size());
  work->submitting = true;
  // Whatever is thrown from here on, what was taken keeps all that it uses until it has completed.
  const py::object started = py::cast(Transfer(work));
  const Submitting submitting(*this, work);
  std::size_t taken = 0;
  while (taken < made.size()) {
    const Submitted submitted =
        engine.submit(std::span<const Request>(made).subspan(taken), std::span(work->ids).subspan(taken));
    taken += submitted.taken;
    work->left += submitted.taken;
    if (taken == made.size()) break;
    const bool full = submitted.status.is_ok();
    if (full && (made.size() > 1 || !abandoned_.empty())) {
      make_room(work);
      continue;
    }
    const Status why =
        full ? Status(ErrorCode::queue_full, "all of max_transfers are in use: wait for some, then try again")
             : submitted.status;
    py::object error = exception_of(why);
    work->ids.resize(taken);
    if (made.size() > 1) {
      error.attr("index") = taken;
      error.attr("transfer") = started;
    }
    PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
    throw py::error_already_set();
  }
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i]->stream_waits)
      check(engine.stream_wait(work->ids[i],
                               reinterpret_cast<void*>(py::cast<std::uintptr_t>(requests[i]->stream.attr("handle")))));
  return started;
}

Tracker::Submitting::Submitting(Tracker& tracker, const std::shared_ptr<Work>& work) : tracker_(tracker), work_(work) {
  if (work->polled) tracker.polled_.emplace(work.get(), work);
}

Tracker::Submitting::~Submitting() {
  work_->submitting = false;
  if (work_->left > 0) return;
  const py::error_scope kept;
  const Pins over = std::exchange(work_->pins, {});
  if (tracker_.polled_.erase(work_.get()) > 0 && !work_->ids.empty()) tracker_.ended_.push_back(work_);
}

// Until the first that is not collected has completed, `most` at the longest.
void Tracker::wait_for_next(Work& work, Timeout most, LetGo& over) {
  Engine& engine = session_->engine();
  const TransferId id = work.ids[work.next];
  work.collecting = true;
  const auto done = unlocked([&] { return engine.wait(id, most); });
  work.collecting = false;
  if (!done && done.status().code() == ErrorCode::timed_out) return;
  work.completed(work.next++, done ? *done : Completion{id, done.status()}, over);
}

// The queue is full of this call's transfers, or of transfers that nobody waits for: waits until some complete.
void Tracker::make_room(const std::shared_ptr<Work>& work) {
  constexpr Timeout kMost = std::chrono::milliseconds(50), kOneOfMany = std::chrono::milliseconds(2);
  LetGo over;
  reap();
  const std::size_t left = work->left;
  if (!work->polled) work->collect(over);
  const auto waits = std::find_if(abandoned_.begin(), abandoned_.end(),
                                  [](const auto& one) { return one->left > 0 && !one->collecting; });
  if (work->polled) {
    if (poll() == 0) wait_readable(Deadline(0.001).slice());
  } else if (work->left > 0) {
    if (work->left == left) wait_for_next(*work, abandoned_.empty() ? kMost : kOneOfMany, over);
  } else if (waits != abandoned_.end()) {
    const std::shared_ptr<Work> one = *waits;
    wait_for_next(*one, kOneOfMany, over);
  } else {  // others' transfers fill the queue
    const Unlocked meanwhile;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (session_->closed()) raise(ErrorCode::closed, "the engine is closed");
  handle_signals();
}

void Tracker::abandon(std::shared_ptr<Work> work) {
  if (!session_->closed()) abandoned_.push_back(std::move(work));
}

void Tracker::reap() {
  LetGo over;
  std::vector<std::shared_ptr<Work>> ended;
  for (std::size_t most = std::min<std::size_t>(abandoned_.size(), 64); most > 0; --most) {
    std::shared_ptr<Work> work = std::move(abandoned_.front());
    abandoned_.pop_front();
    work->collect(over);
    (work->left == 0 ? ended.emplace_back() : abandoned_.emplace_back()) = std::move(work);
  }
}

std::size_t Tracker::poll() {
  std::size_t total = 0;
  LetGo over;
  const auto ended = take_ended(total, over);
  call_back(ended);
  return total;
}

// Those whose last request has completed. `total` grows by the completions that were there.
std::vector<std::shared_ptr<Work>> Tracker::take_ended(std::size_t& total, LetGo& over) {
  Engine& engine = session_->engine();
  std::array<Completion, 64> completions;
  std::vector<std::shared_ptr<Work>> ended = std::exchange(ended_, {});
  for (;;) {
    const std::size_t count = unlocked([&] { return engine.poll(completions); });
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = polled_.find(static_cast<const Work*>(completions[i].user_data));
      if (found == polled_.end()) continue;
      Work& work = *found->second;
      if (work.left == 0) continue;  // the engine was closed meanwhile, which has ended it
      std::size_t index = 0;
      if (!completions[i].status)
        while (index < work.ids.size() && work.ids[index] != completions[i].id) ++index;
      work.completed(index, completions[i], over);
      if (work.left > 0 || work.submitting) continue;
      ended.push_back(std::move(found->second));
      polled_.erase(found);
    }
    total += count;
    if (count < completions.size()) return ended;
  }
}

// One that raises keeps no other from being called: awaited transfers hear of their end by a callback too.
void Tracker::call_back(const std::vector<std::shared_ptr<Work>>& ended) {
  std::optional<py::error_already_set> first;
  for (const auto& work : ended) {
    const auto callbacks = std::exchange(work->callbacks, {});
    for (const py::object& callback : callbacks) try {
        callback(py::cast(Transfer(work)));
      } catch (py::error_already_set& error) {
        if (first)
          error.discard_as_unraisable("a transfer's callback");
        else
          first.emplace(std::move(error));
      }
  }
  if (first) throw std::move(*first);
}

void Tracker::wait(const std::shared_ptr<Work>& work, const Deadline& deadline) {
  if (work->left == 0) return;
  if (work->polled) return wait_polled(*work, deadline);
  Engine& engine = session_->engine();
  const auto timed_out = [] {
    raise(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
  };
  while (work->collecting) {  // another thread collects, and will notify
    {
      const Unlocked meanwhile;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    handle_signals();
    if (deadline.passed()) timed_out();
  }
  LetGo over;
  while (work->left > 0) {
    std::vector<Completion> completions;
    completions.reserve(work->ids.size() - work->next);
    Status status;
    work->collecting = true;
    {
      const Unlocked meanwhile;
      for (std::size_t i = work->next; i < work->ids.size(); ++i) {
        auto done = engine.wait(work->ids[i], deadline.slice());
        status = done.status();
        if (!done) break;
        completions.push_back(std::move(*done));
      }
    }
    work->collecting = false;
    for (const Completion& completion : completions) work->completed(work->next++, completion, over);
    if (work->left == 0) return;
    if (status.code() != ErrorCode::timed_out) {
      const TransferId id = work->ids[work->next];
      work->completed(work->next++, Completion{id, status}, over);
      continue;
    }
    handle_signals();
    if (deadline.passed()) timed_out();
  }
}

void Tracker::wait_readable(Timeout most) {
  pollfd one{session_->engine().fd(), POLLIN, 0};
  const Unlocked meanwhile;
  (void)::poll(&one, 1, static_cast<int>(std::min<std::int64_t>((most.count() + 999) / 1000, 5)));
}

void Tracker::wait_polled(const Work& work, const Deadline& deadline) {
  while (work.left > 0) {
    if (poll() > 0) continue;
    if (work.left == 0) return;
    wait_readable(deadline.slice());
    handle_signals();
    if (deadline.passed()) raise(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
  }
}

void Tracker::closed() {
  std::size_t total = 0;
  LetGo over;
  auto ended = take_ended(total, over);
  const Status why(ErrorCode::closed, "the engine is closed");
  for (auto& [key, work] : std::exchange(polled_, {})) {
    while (work->left > 0) work->completed(0, Completion{{}, why}, over);
    ended.push_back(work);
  }
  const auto abandoned = std::exchange(abandoned_, {});
  call_back(ended);
}

}  // namespace fairway::python

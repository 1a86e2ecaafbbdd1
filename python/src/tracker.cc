#include <array>
#include <thread>

#include <poll.h>

#include "transfers.h"

namespace fairway::python {

// Where nobody has imported asyncio no loop runs; importing it here would make the first transfer wait for 30 ms.
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

void Work::completed(std::size_t index, const Completion& completion) {
  bytes += completion.bytes;
  old_value = completion.old_value;
  if (!completion.status) failed.push_back({index, completion.status});
  if (--left == 0) pins = {};
}

TransferId Work::first() const {
  if (ids.empty()) raise(ErrorCode::invalid_argument, "none of the transfer's requests was taken");
  return ids[0];
}

void Work::collect(const std::vector<Completion>& completions) {
  for (const Completion& completion : completions) completed(next++, completion);
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
      if (work->polled && work->left > 0) polled_.emplace(work.get(), work);
      error.attr("transfer") = py::cast(Transfer(work));
    }
    PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
    throw py::error_already_set();
  }
  if (work->polled) polled_.emplace(work.get(), work);
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i]->stream_waits)
      check(engine.stream_wait(work->ids[i],
                               reinterpret_cast<void*>(py::cast<std::uintptr_t>(requests[i]->stream.attr("handle")))));
  return py::cast(Transfer(std::move(work)));
}

// The queue is full of this call's transfers, or of those that nobody waits for: some of them end.
void Tracker::make_room(const std::shared_ptr<Work>& work) {
  Engine& engine = session_->engine();
  reap();
  if (!abandoned_.empty()) {
    const std::shared_ptr<Work> oldest = abandoned_.front();
    const bool others = oldest->collecting;
    const auto done = [&]() -> Result<Completion> {
      oldest->collecting = true;
      py::gil_scoped_release unlocked;
      if (!others) return engine.wait(oldest->ids[oldest->next], std::chrono::milliseconds(50));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Status(ErrorCode::timed_out, "another thread waits for it");
    }();
    if (!others) oldest->collecting = false;
    if (done) oldest->completed(oldest->next++, *done);
    handle_signals();
    return;
  }
  if (work->polled) {
    polled_.emplace(work.get(), work);
    poll();
  } else if (work->left > 0) {
    const auto done = [&] {
      py::gil_scoped_release unlocked;
      return engine.wait(work->ids[work->next], std::chrono::milliseconds(50));
    }();
    if (done) work->completed(work->next++, *done);
  }
  if (session_->closed()) raise(ErrorCode::closed, "the engine is closed");
  handle_signals();
}

void Tracker::abandon(std::shared_ptr<Work> work) {
  if (!session_->closed()) abandoned_.push_back(std::move(work));
}

void Tracker::reap() {
  if (abandoned_.empty()) return;
  Engine& engine = session_->engine();
  std::vector<std::shared_ptr<Work>> ended;  // their pins end here, behind the loop: that may come back to us
  const std::size_t looked = std::min<std::size_t>(abandoned_.size(), 64);
  for (std::size_t i = 0; i < looked; ++i) {
    Work& work = *abandoned_[i];
    while (work.left > 0 && !work.collecting) {
      const auto done = engine.wait(work.ids[work.next], Timeout(0));
      if (!done && done.status().code() == ErrorCode::timed_out) break;
      work.completed(work.next++, done ? *done : Completion{work.ids[work.next], done.status()});
    }
    if (work.left == 0) ended.push_back(std::move(abandoned_[i]));
  }
  std::erase(abandoned_, nullptr);
}

std::size_t Tracker::poll() {
  Engine& engine = session_->engine();
  std::array<Completion, 64> completions;
  std::vector<std::shared_ptr<Work>> ended;
  std::size_t total = 0;
  for (;;) {
    const std::size_t count = [&] {
      py::gil_scoped_release unlocked;
      return engine.poll(completions);
    }();
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = polled_.find(static_cast<const Work*>(completions[i].user_data));
      if (found == polled_.end()) continue;
      Work& work = *found->second;
      std::size_t index = 0;
      if (!completions[i].status)
        while (index < work.ids.size() && work.ids[index] != completions[i].id) ++index;
      work.completed(index, completions[i]);
      if (work.left > 0) continue;
      ended.push_back(std::move(found->second));
      polled_.erase(found);
    }
    total += count;
    if (count < completions.size()) break;
  }
  for (const auto& work : ended) {
    const auto callbacks = std::exchange(work->callbacks, {});
    for (const py::object& callback : callbacks) callback(py::cast(Transfer(work)));
  }
  return total;
}

void Tracker::wait(const std::shared_ptr<Work>& work, const Deadline& deadline) {
  if (work->left == 0) return;
  if (work->polled) return wait_polled(*work, deadline);
  Engine& engine = session_->engine();
  const auto timed_out = [] {
    raise(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
  };
  while (work->collecting) {  // by another thread, which will tell
    {
      py::gil_scoped_release unlocked;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    handle_signals();
    if (deadline.passed()) timed_out();
  }
  while (work->left > 0) {
    std::vector<Completion> completions;
    completions.reserve(work->ids.size() - work->next);
    Status status;
    work->collecting = true;
    {
      py::gil_scoped_release unlocked;
      for (std::size_t i = work->next; i < work->ids.size(); ++i) {
        auto done = engine.wait(work->ids[i], deadline.slice());
        status = done.status();
        if (!done) break;
        completions.push_back(std::move(*done));
      }
    }
    work->collecting = false;
    work->collect(completions);
    if (work->left == 0) return;
    if (status.code() != ErrorCode::timed_out) {
      work->completed(work->next, Completion{work->ids[work->next], status});
      ++work->next;
      continue;
    }
    handle_signals();
    if (deadline.passed()) timed_out();
  }
}

void Tracker::wait_polled(const Work& work, const Deadline& deadline) {
  const int fd = session_->engine().fd();
  while (work.left > 0) {
    if (poll() > 0) continue;
    if (work.left == 0) return;
    {
      py::gil_scoped_release unlocked;
      pollfd one{fd, POLLIN, 0};
      (void)::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(deadline.slice().count() / 1000, 5)));
    }
    handle_signals();
    if (deadline.passed()) raise(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
  }
}

void Tracker::closed() {
  poll();
  const Status why(ErrorCode::closed, "the engine is closed");
  std::vector<std::shared_ptr<Work>> left;
  for (auto& [key, work] : polled_) left.push_back(work);
  polled_.clear();
  for (const auto& work : left) {
    while (work->left > 0) work->completed(0, Completion{{}, why});
    const auto callbacks = std::exchange(work->callbacks, {});
    for (const py::object& callback : callbacks) callback(py::cast(Transfer(work)));
  }
  abandoned_.clear();
}

}  // namespace fairway::python

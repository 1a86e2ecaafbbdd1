#include <algorithm>
#include <array>
#include <limits>
#include <thread>
#include <utility>

#include "queues.h"

namespace fairway::python {
namespace {
constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

std::uint8_t far_bit(const Status& ended) {
  const auto bit = [](Cancelled::Far far) { return static_cast<std::uint8_t>(1u << static_cast<unsigned>(far)); };
  if (ended) return bit(Cancelled::Far::all);
  switch (ended.effect()) {
    case Effect::not_applied: return bit(Cancelled::Far::nothing);
    case Effect::partial: return bit(Cancelled::Far::partial);
    case Effect::unknown: break;
  }
  return bit(Cancelled::Far::unknown);
}

}  // namespace

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
  far |= far_bit(completion.status);
  bytes += completion.bytes;
  old_value = completion.old_value;
  peer = completion.peer;
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
    completed(next++, done ? *done : unheard(id, done.status()), over);
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
  work->queue = requests[0]->queue;
  work->polled = work->queue != nullptr || in_event_loop();
  for (const PyRequest* given : requests) {
    if (given->queue != work->queue)
      raise(ErrorCode::invalid_argument,
            "requests of one submit name one queue: submit those of another by themselves");
    work->polled = work->polled || !given->callback.is_none();
  }
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
  if (work->polled) tracker.polled_with(*work).live.emplace(work.get(), work);
}

Tracker::Submitting::~Submitting() {
  work_->submitting = false;
  if (work_->left > 0) return;
  const py::error_scope kept;
  const Pins over = std::exchange(work_->pins, {});
  Polled& polled = tracker_.polled_with(*work_);
  if (polled.live.erase(work_.get()) > 0 && !work_->ids.empty()) polled.ended.push_back(work_);
}

// Until the first that is not collected has completed, `most` at the longest.
void Tracker::wait_for_next(Work& work, Timeout most, LetGo& over) {
  Engine& engine = session_->engine();
  const TransferId id = work.ids[work.next];
  work.collecting = true;
  const auto done = unlocked([&] { return engine.wait(id, most); });
  work.collecting = false;
  if (!done && done.status().code() == ErrorCode::timed_out) return;
  work.completed(work.next++, done ? *done : unheard(id, done.status()), over);
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
  if (work->queue != nullptr) {
    const QueueId id = work->queue->id;
    if (gather(work->queue->polled, id, kAll, over) == 0) {
      poll();  // those of Engine.poll may fill it, too
      (void)unlocked([&] { return session_->engine().wait(id, std::chrono::milliseconds(1)); });
    }
  } else if (work->polled) {
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
  if (std::any_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->dropped; })) reap_queues();
}

// A queue that nobody polls any more keeps what its transfers need until they have completed.
void Tracker::reap_queues() {
  const auto all = queues_;
  for (const auto& queue : all) {
    if (!queue->dropped) continue;
    LetGo over;
    gather(queue->polled, queue->id, kAll, over);
    const auto ended = std::exchange(queue->polled.ended, {});
    if (queue->polled.live.empty() && session_->engine().end_queue(queue->id)) forget(*queue);
  }
}

std::size_t Tracker::poll() {
  LetGo over;
  const std::size_t total = gather(polled_, {}, kAll, over);
  call_back(std::exchange(polled_.ended, {}));
  return total;
}

Polled& Tracker::polled_with(const Work& work) {
  return work.queue != nullptr ? work.queue->polled : polled_;
}

// Takes completions from a queue, or what Engine::poll gives, until `most` transfers of `into` have ended. Gives how
// many completions that took.
std::size_t Tracker::gather(Polled& into, QueueId from, std::size_t most, LetGo& over) {
  Engine& engine = session_->engine();
  std::array<Completion, 64> completions;
  std::size_t total = 0;
  while (into.ended.size() < most) {
    const std::span room = std::span(completions).first(std::min(completions.size(), most - into.ended.size()));
    const std::size_t count = unlocked([&] { return from ? engine.poll(from, room) : engine.poll(room); });
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = into.live.find(static_cast<const Work*>(completions[i].user_data));
      if (found == into.live.end()) continue;
      Work& work = *found->second;
      if (work.left == 0) continue;  // the engine was closed meanwhile, which has ended it
      std::size_t index = 0;
      if (!completions[i].status)
        while (index < work.ids.size() && work.ids[index] != completions[i].id) ++index;
      work.completed(index, completions[i], over);
      if (work.left > 0 || work.submitting) continue;
      into.ended.push_back(std::move(found->second));
      into.live.erase(found);
    }
    total += count;
    if (count < room.size()) break;
  }
  return total;
}

// One that raises keeps no other from being called: awaited transfers hear of their end by a callback too.
void Tracker::call_back(const std::deque<std::shared_ptr<Work>>& ended) {
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

std::shared_ptr<Queue> Tracker::make_queue(std::uint32_t capacity) {
  reap();
  auto made = std::make_shared<Queue>();
  made->id = take(session_->engine().make_queue(capacity));
  queues_.push_back(made);
  return made;
}

std::vector<std::shared_ptr<Work>> Tracker::poll(Queue& queue, std::size_t most) {
  LetGo over;
  gather(queue.polled, queue.id, most, over);
  auto& ended = queue.polled.ended;
  const auto last = ended.begin() + static_cast<std::ptrdiff_t>(std::min(most, ended.size()));
  std::vector<std::shared_ptr<Work>> out(ended.begin(), last);
  ended.erase(ended.begin(), last);
  return out;
}

void Tracker::forget(const Queue& queue) {
  std::erase_if(queues_, [&](const auto& one) { return one.get() == &queue; });
}

void Tracker::end_all(Polled& of, QueueId from) {
  LetGo over;
  gather(of, from, kAll, over);
  const Status why(ErrorCode::closed, "the engine is closed");
  for (auto& [key, work] : std::exchange(of.live, {})) {
    while (work->left > 0) work->completed(0, unheard({}, why), over);
    of.ended.push_back(work);
  }
}

void Tracker::closed() {
  const auto queues = std::exchange(queues_, {});  // whoever still polls them gets the ends
  for (const auto& queue : queues) {
    end_all(queue->polled, queue->id);
    if (queue->dropped) queue->polled.ended.clear();
  }
  end_all(polled_, {});
  const auto abandoned = std::exchange(abandoned_, {});
  call_back(std::exchange(polled_.ended, {}));
}

}  // namespace fairway::python

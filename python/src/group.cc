#include "group.h"

#include <utility>

namespace fairway::python {
namespace {

// How long a new job is left to the thread that started it: mostly it waits at once.
constexpr auto kGrace = std::chrono::microseconds(60);
// How long the interpreter's main thread runs a job itself. Later it only waits, and sees Ctrl-C.
constexpr auto kOwnTurn = std::chrono::microseconds(500);

// Larger ones it leaves to the group's thread at once: that one waits in the kernel instead of looking.
constexpr std::size_t kOwnBytes = 2U << 20;

// With the interpreter's lock.
std::vector<Group*>& all_groups() {
  static auto* const all = new std::vector<Group*>;  // a group may be freed as late as the interpreter
  return *all;
}

}  // namespace

// Handlers of signals run on this thread alone.
bool is_main_thread() {
  static const auto main =
      py::cast<unsigned long>(py::module_::import("threading").attr("main_thread")().attr("ident"));
  return PyThread_get_thread_ident() == main;
}

Group::Group(std::shared_ptr<Session> session, Communicator communicator)
    : session_(std::move(session)),
      communicator_(std::move(communicator)),
      rank_(communicator_->rank()),
      size_(communicator_->size()) {
  for (int rank = 0; rank < size_; ++rank) addresses_.push_back(communicator_->address(rank));
  ++*session_->communicators();
  all_groups().push_back(this);
  sync_->worker = std::thread([this] { work(); });
}

Group::~Group() {
  const py::error_scope kept;
  std::erase(all_groups(), this);
  close();
}

void close_groups_of(const Session& session) {
  std::vector<std::shared_ptr<Group>> open;
  for (Group* group : all_groups())
    if (group->session().get() == &session && !group->closed())
      if (auto held = group->weak_from_this().lock()) open.push_back(std::move(held));
  for (const auto& group : open) {
    if (group->busy()) group->abort();
    group->close();
  }
}

void Group::start(const std::shared_ptr<Job>& job, bool soon) {
  (void)session_->engine();  // raises in a forked child
  reap();
  job->queued = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    if (!stop_) {
      queue_.push_back(job);
      if (soon && !running_) wake_.notify_one();
      return;
    }
  }
  raise(ErrorCode::closed, "the communicator was closed");
}

Status Group::wait(const std::shared_ptr<Job>& job, const Deadline& deadline) {
  (void)session_->engine();
  const bool patient = deadline.forever() && !is_main_thread();
  auto step = [&](Timeout slice) -> Status {
    const auto end = Clock::now() + slice;
    Lock lock(mutex_);
    while (!job->done) {
      if (!running_ && queue_.front() == job && !job->handed && job->callbacks.empty()) {
        advance(lock, patient);
        continue;
      }
      if (!running_) wake_.notify_one();
      if (ended_.wait_until(lock, end) == std::cv_status::timeout)
        return {ErrorCode::timed_out, "the operation goes on"};
    }
    return {};
  };
  Status status = wait_in_slices(deadline, step);
  reap();
  return status;
}

bool Group::is_done(const Job& job) {
  const bool done = [&] {
    const std::lock_guard lock(mutex_);
    return job.done;
  }();
  if (done) reap();
  return done;
}

void Group::add_callback(const std::shared_ptr<Job>& job, py::object callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!job->done) {
      job->callbacks.push_back(std::move(callback));
      if (!running_) wake_.notify_one();
      return;
    }
  }
  callback();
}

// ---- running, without the interpreter's lock ----

void Group::work() {
  Lock lock(mutex_);
  for (;;) {
    const auto has_work = [this] { return !running_ && (stop_ || !queue_.empty()); };
    if (!watches_) {
      wake_.wait(lock, [&] { return watches_ || has_work(); });
    } else if (!wake_.wait_for(lock, kWatch, has_work)) {
      look_at_streams(lock);
      continue;
    }
    if (!has_work()) continue;  // it watches from now on
    if (queue_.empty()) return;
    const Job& first = *queue_.front();
    const auto ready = first.queued + kGrace;
    if (!first.handed && !stop_ && Clock::now() < ready) {
      wake_.wait_until(lock, ready);
      continue;
    }
    advance(lock, true);
    bool told = false;
    for (const auto& job : finished_) told = told || !job->callbacks.empty();
    if (!told) continue;
    lock.unlock();
    reap_as_worker();
    lock.lock();
  }
}

void Group::advance(Lock& lock, bool to_the_end) {
  running_ = true;
  Job& job = *queue_.front();
  lock.unlock();
  const bool ended = run(job, to_the_end);
  lock.lock();
  running_ = false;
  if (ended)
    end_front(lock);
  else
    job.handed = true;
  if (!queue_.empty() || stop_) wake_.notify_one();
  ended_.notify_all();
}

void Group::end_front(Lock&) {
  queue_.front()->done = true;
  if (!queue_.front()->failure.status) failure_ = queue_.front()->failure;
  finished_.push_back(std::move(queue_.front()));
  queue_.pop_front();
}

bool Group::run(Job& job, bool to_the_end) {
  Communicator& communicator = *communicator_;
  if (job.whole) {
    if (!to_the_end) return false;
    job.status = job.whole(communicator);
    return true;
  }
  if (!job.id) {
    const auto id = communicator.start(job.call);
    if (!id) {
      job.status = id.status();
      job.failure = communicator.failure();
      return true;
    }
    job.id = *id;
  }
  if (!to_the_end && job.call.count * size_of(job.call.type) > kOwnBytes) return false;
  if (!to_the_end)
    for (const auto end = Clock::now() + kOwnTurn; !communicator.test(job.id);) {
      if (Clock::now() >= end) return false;
      std::this_thread::yield();
    }
  job.status = communicator.wait(job.id);
  if (!job.status) job.failure = communicator.failure();
  return true;
}

// A callback may have been the last that knew of the group. The worker cannot end the group: another thread does, which
// is counted, so that the interpreter waits for it.
void Group::reap_as_worker() {
  const Locked locked;
  auto self = weak_from_this().lock();  // null: it is ending, and waits for this thread
  reap();
  if (self.use_count() == 1)
    std::thread([last = std::move(self), counted = std::make_unique<Unlocked::Counted>()]() mutable {
      const Locked locked_there;
      last.reset();
      counted.reset();
    }).detach();
}

// ---- with the interpreter's lock ----

void Group::reap() {
  std::vector<std::shared_ptr<Job>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(finished_);
  }
  for (const auto& job : ended) {
    std::vector<py::object> callbacks;
    {
      const std::lock_guard lock(mutex_);
      callbacks.swap(job->callbacks);
    }
    for (const py::object& callback : callbacks) try {
        callback();
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("a callback of a fairway.Operation");
      }
    // Nobody hears when such memory is free again, so it stays for ever.
    if (job->status.code() == ErrorCode::not_fenced) (void)job->keep.release();
    job->keep = py::none();
  }
}

std::shared_ptr<Group> Group::regroup(std::function<Result<Communicator>(Communicator&)> how) {
  const auto made = std::make_shared<std::optional<Communicator>>();
  const auto job = std::make_shared<Job>();
  job->whole = [made, how = std::move(how)](Communicator& communicator) {
    auto result = how(communicator);
    if (!result) return result.status();
    *made = std::move(*result);
    return Status();
  };
  start(job, true);
  check(wait(job, Deadline(std::nullopt)));
  if (job->status.code() == ErrorCode::not_found) return nullptr;
  if (!job->status) (void)result_of(*job);
  return std::make_shared<Group>(session_, std::move(**made));
}

void Group::abort() {
  if (session_->forked()) return;
  const Unlocked unlocked;
  const std::lock_guard lock(mutex_);  // nobody ends the communicator meanwhile
  if (communicator_) communicator_->abort();
}

void Group::close() {
  if (session_->forked()) {  // the thread is the parent's, and what it waits on would be waited for here
    (void)sync_.release();
    if (communicator_) new std::optional<Communicator>(std::move(communicator_));
    return;
  }
  {
    const Unlocked unlocked;
    const std::lock_guard once(sync_->closing);
    {
      Lock lock(mutex_);
      stop_ = true;
      for (const auto& job : queue_)
        if (job != queue_.front() && !job->done) job->status = Status(ErrorCode::closed, "the communicator was closed");
      // What runs, or may have begun, ends first; what only waits its turn ends now.
      while (queue_.size() > 1) {
        queue_.back()->done = true;
        finished_.push_back(std::move(queue_.back()));
        queue_.pop_back();
      }
      wake_.notify_all();
      ended_.notify_all();
    }
    if (sync_->worker.joinable()) sync_->worker.join();
    Lock lock(mutex_);
    ended_.wait(lock, [this] { return !running_; });
    std::optional<Communicator> last;
    last.swap(communicator_);  // abort() finds none
    lock.unlock();
  }
  if (!std::exchange(ended_once_, true)) --*session_->communicators();
  const auto ended = std::exchange(shown_, {});  // no rank reads there any more
  reap();
}

bool Group::closed() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

bool Group::busy() {
  const std::lock_guard lock(mutex_);
  return running_ || !queue_.empty();
}

CollectiveFailure Group::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Group::check_failure() {
  CollectiveFailure why;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.status) return;
    why = failure_;
  }
  raise_failed(why.status, why);
}

py::object result_of(const Job& job) {
  if (!job.status) raise_failed(job.status, job.failure);
  return job.result;
}

void raise_failed(const Status& status, const CollectiveFailure& failure) {
  const py::object error = exception_of(status);
  if (!failure.status) {
    error.attr("rank") = failure.rank < 0 ? py::object(py::none()) : py::object(py::int_(failure.rank));
    error.attr("operation") = failure.operation;
    error.attr("phase") = failure.phase;
  }
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

}  // namespace fairway::python

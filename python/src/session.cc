#include "session.h"

#include <atomic>
#include <system_error>
#include <thread>

#include <pthread.h>
#include <unistd.h>

namespace fairway::python {
namespace {

std::atomic<int> fork_count{0};

// Past this the freeing of an array that a peer's frozen process may still write says so, and goes on waiting.
constexpr Timeout kPatience = std::chrono::seconds(5);
// Before the engine is asked again, where it answers at once that the memory is not safe.
constexpr Timeout kPause = std::chrono::milliseconds(20);

void warn(const std::string& text) {
  if (PyErr_WarnEx(PyExc_ResourceWarning, text.c_str(), 1) != 0) PyErr_WriteUnraisable(nullptr);
}

}  // namespace

int forks() {
  static const bool watched = [] {
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  (void)watched;
  return fork_count.load(std::memory_order_relaxed);
}

// ---- Registration ----

Registration::Registration(std::shared_ptr<Session> session, const Region& region, std::shared_ptr<Hold> hold)
    : session_(std::move(session)), region_(region), hold_(std::move(hold)) {}

void Registration::check_live() const {
  if (!live_) raise(ErrorCode::revoked, "the region was deregistered");
}

Status Registration::end(Timeout timeout) {
  if (!live_) return {};
  Engine& engine = session_->engine();
  const Status status = [&] {
    const Unlocked unlocked;
    return engine.deregister(region_, timeout);
  }();
  // revoked: another call has seen its end. closed: the engine's end was its own.
  const bool over = status || status.code() == ErrorCode::closed || status.code() == ErrorCode::revoked;
  if (!over) return status;
  live_ = false;
  session_->remove(*this);
  hold_.reset();
  return {};
}

bool Registration::engine_closed() {
  if (session_->engine().fence_state(region_) == Fence::pending) {  // may be asked again
    keep_for_good();
    return false;
  }
  live_ = false;
  hold_.reset();
  return true;
}

void Registration::keep_for_good() {
  new std::shared_ptr<Hold>(std::move(hold_));
}

Registration::~Registration() {
  if (!live_) return;
  const py::error_scope kept;  // may run while an exception propagates
  if (session_->forked()) {
    keep_for_good();  // the parent's: a child must not end it
    return;
  }
  if (session_->closed()) return;
  const Status status = end(kPatience);
  if (status) return;
  if (hold_ != nullptr) {
    warn("memory stays allocated for good: " + status.to_string());
    keep_for_good();
    session_->remove(*this);
    return;
  }
  warn("an array is not freed until its last user is gone: " + status.to_string());
  while (!session_->closed() && !end(kPatience)) {
    const Unlocked unlocked;
    std::this_thread::sleep_for(kPause);
  }
}

// ---- Session ----

Session::Session(std::shared_ptr<Engine> engine) : engine_(std::move(engine)), opened_in_(forks()) {}

Session::~Session() {
  if (forked()) {
    new std::shared_ptr<Engine>(engine_);  // its threads are the parent's; closing it here would speak for the parent
    new auto(std::move(left_behind_));
    return;
  }
  if (*communicators_ > 0) return;  // one that nobody waits for is still being made: its thread owns the engine, too
  const Unlocked unlocked;
  engine_->close();
  left_behind_.clear();
}

void Session::wait_for_thread(std::function<void()> work) {
  const auto is_over = [](const std::future<void>& one, Timeout most) {
    return one.wait_for(most) == std::future_status::ready;
  };
  std::erase_if(left_behind_, [&](const auto& one) { return is_over(one, Timeout(0)); });
  std::future<void> attempt;
  try {
    attempt = std::async(std::launch::async, std::move(work));
  } catch (const std::system_error& error) {
    raise(ErrorCode::resource_exhausted, std::string("no thread can be started: ") + error.what());
  }
  try {
    while (!unlocked([&] { return is_over(attempt, Deadline(std::nullopt).slice()); })) handle_signals();
    handle_signals();
  } catch (const py::error_already_set&) {
    left_behind_.push_back(std::move(attempt));
    throw;
  }
}

bool Session::forked() const {
  return forks() != opened_in_;
}

Engine& Session::engine() {
  if (forked()) {
    PyErr_SetString(py::module_::import("fairway.errors").attr("Forked").ptr(),
                    "this engine was opened by the parent process and does not work in a forked child: open a new "
                    "Engine here, or start workers by multiprocessing's \"spawn\"");
    throw py::error_already_set();
  }
  return *engine_;
}

Engine& Session::open_engine() {
  Engine& found = engine();
  if (closed_) raise(ErrorCode::closed, "the engine is closed");
  return found;
}

// A communicator without users may still be closing on another thread.
void Session::wait_for_communicators() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (*communicators_ > 0) {
    if (std::chrono::steady_clock::now() >= end)
      raise(ErrorCode::invalid_argument, "the engine has communicators that are not closed: close or abort them first");
    const Unlocked unlocked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Session::close() {
  if (closed_) return;
  Engine& open = engine();
  close_groups_of(*this);
  wait_for_communicators();
  {
    const Unlocked unlocked;
    open.close();  // returns once it is closed, whoever began
  }
  closed_ = true;
  std::vector<std::shared_ptr<Registration>> all;
  for (auto& [address, weak] : by_address_)
    if (auto held = weak.lock()) all.push_back(std::move(held));
  by_address_.clear();
  const auto owned = std::exchange(owned_, {});  // what ends here may come back to us
  std::size_t kept = 0;
  for (const auto& held : all) kept += held->engine_closed() ? 0 : 1;
  for (const auto& [key, each] : owned)
    if (each.first->live()) new py::object(py::reinterpret_borrow<py::weakref>(each.second)());
  if (kept != 0)
    warn("memory stays allocated for good: a peer may still touch it, though the engine is closed: " +
         std::to_string(kept) + " region" + (kept == 1 ? "" : "s"));
}

std::shared_ptr<Registration> Session::add(void* address, std::uint64_t size_bytes, Access access,
                                           const MemorySource& source, std::shared_ptr<Hold> hold) {
  Engine& on = engine();
  auto region = [&] {
    const Unlocked unlocked;
    return on.register_memory(address, size_bytes, access, source);
  }();
  auto made = std::make_shared<Registration>(shared_from_this(), take(std::move(region)), std::move(hold));
  if (closed_) raise(ErrorCode::closed, "the engine is closed");  // meanwhile
  by_address_.emplace(reinterpret_cast<std::uintptr_t>(address), made);
  return made;
}

void Session::remove(const Registration& registration) {
  const auto address = reinterpret_cast<std::uintptr_t>(registration.region().address);
  auto [next, end] = by_address_.equal_range(address);
  while (next != end) {
    const auto held = next->second.lock();
    next = held == nullptr || held.get() == &registration ? by_address_.erase(next) : std::next(next);
  }
}

std::shared_ptr<Registration> Session::find(std::uintptr_t address, std::uint64_t size_bytes) {
  // Regions may overlap and nest; the nearest start is nearly always the one.
  auto next = by_address_.upper_bound(address);
  for (int tries = 0; next != by_address_.begin() && tries < 16; ++tries) {
    --next;
    const auto held = next->second.lock();
    if (held == nullptr || !held->live()) continue;
    const auto first = reinterpret_cast<std::uintptr_t>(held->region().address);
    if (address >= first && address + size_bytes <= first + held->region().size_bytes) return held;
  }
  return nullptr;
}

std::shared_ptr<Registration> Session::of_view(py::handle object, const View& view) {
  const auto [address, size] = view.range();
  if (auto found = find(address, size)) return found;
  if (closed_) raise(ErrorCode::closed, "the engine is closed");
  const auto owner = owner_of(object, view);
  if (!owner || owned_.contains(owner->object.ptr()))
    return add(reinterpret_cast<void*>(address), size, Access::none, {}, view.hold);
  PyObject* const key = owner->object.ptr();
  auto made = add(reinterpret_cast<void*>(owner->address), owner->size_bytes, Access::none, {}, nullptr);
  const std::weak_ptr<Session> self = weak_from_this();
  // Runs when the array is about to go and its memory is still there.
  py::cpp_function gone([self, key](const py::object&) {
    const auto session = self.lock();
    if (session == nullptr) return;
    const auto found = session->owned_.find(key);
    if (found == session->owned_.end()) return;
    const auto last = std::move(found->second);
    session->owned_.erase(found);
  });
  owned_.emplace(key, std::make_pair(made, py::object(py::weakref(owner->object, gone))));
  return made;
}

}  // namespace fairway::python

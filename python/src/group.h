#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "fairway/collectives.h"

#include "session.h"
#include "transfers.h"

namespace fairway::python {

// One call on a communicator. Everything but the Python objects is guarded by the group's mutex, or belongs to the
// thread that runs the job.
struct Job {
  Collective call;
  std::shared_ptr<const void> borrowed = {};        // what the call refers to beside its memory
  std::function<Status(Communicator&)> whole = {};  // instead of `call`: split, shrink, grow, run_all
  OperationId id = {};
  std::chrono::steady_clock::time_point queued = {};
  bool handed = false;  // the worker ends it
  bool done = false;
  Status status;
  CollectiveFailure failure;
  // With the interpreter's lock only. `keep`: the memory's owners.
  py::object keep = py::none(), result = py::none();
  std::vector<py::object> callbacks;
};

// One call, and the blocks of all_to_allv, which it borrows: so it stays where it is.
struct PyCall {
  Collective call;
  std::array<std::vector<std::size_t>, 4> blocks;
};

// A communicator as Python holds it. Jobs run one after the other, in the order of their start: on the group's own
// thread, so that they make progress while Python computes, or on the thread that waits, which saves a switch. A
// resource; its Python objects own it.
class Group : public std::enable_shared_from_this<Group> {
 public:
  using Clock = std::chrono::steady_clock;

  Group(std::shared_ptr<Session> session, Communicator communicator);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // All with the interpreter's lock.
  static std::shared_ptr<Group> create(const std::shared_ptr<Session>& session, int rank,
                                       const std::vector<std::string>& addresses, const CommunicatorOptions& options);
  // That of this job, and the engine that it has opened.
  static std::pair<PyEngine, std::shared_ptr<Group>> join(const JobOptions& options);
  // `soon`: nobody waits for it at once, so the worker may begin.
  void start(const std::shared_ptr<Job>& job, bool soon);
  // Until it has ended; timed_out at the deadline. Ctrl-C interrupts; the job goes on.
  Status wait(const std::shared_ptr<Job>& job, const Deadline& deadline);
  [[nodiscard]] bool is_done(const Job& job);
  void add_callback(const std::shared_ptr<Job>& job, py::object callback);
  // A communicator made of this one, by split(), shrink() or grow(); null where this rank is in none.
  std::shared_ptr<Group> regroup(std::function<Result<Communicator>(Communicator&)> how);
  // A call that comes in its turn, once what was started before has ended; on this thread at once, if nothing waits and
  // the call is short. Raises what it ends with.
  void in_turn(std::function<Status(Communicator&)> call, bool is_short);
  // Raises what has ended the communicator, as far as that is known.
  void check_failure();
  // In their turn, too. `memory` owns what a window shows: other ranks may read there until the window ends, or the
  // communicator does, whichever Python objects are left. Returns the window's number.
  std::uint64_t register_window(std::uintptr_t address, std::uint64_t size_bytes, py::object memory);
  void deregister_window(std::uint64_t window);
  // From now on the group's thread looks at operations on streams now and then, so that kernels do not wait for a rank
  // that has died.
  void watch_streams();
  void abort();
  void close();
  [[nodiscard]] bool closed();
  [[nodiscard]] bool busy();
  [[nodiscard]] CollectiveFailure failure();
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  // Of the ranks' engines, as the communicator was told.
  [[nodiscard]] const std::vector<std::string>& addresses() const { return addresses_; }
  [[nodiscard]] const std::shared_ptr<Session>& session() const { return session_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  void work();
  void advance(Lock& lock, bool to_the_end);
  bool run(Job& job, bool to_the_end);
  void end_front(Lock& lock);
  void reap();  // callbacks of jobs that have ended, and the end of what they kept
  void reap_as_worker();
  void look_at_streams(Lock& lock);
  bool begins_now();
  static constexpr auto kWatch = std::chrono::milliseconds(20);  // how often

  const std::shared_ptr<Session> session_;
  std::optional<Communicator> communicator_;  // used by whoever set `running_`
  const int rank_, size_;
  std::vector<std::string> addresses_;
  struct Sync {
    std::mutex mutex;
    std::condition_variable wake, ended;
    std::thread worker;
    std::mutex closing;  // a second close() waits for the first
  };
  std::unique_ptr<Sync> sync_ = std::make_unique<Sync>();  // apart: in a forked child it cannot be destroyed
  std::mutex& mutex_ = sync_->mutex;                       // guards what follows
  std::condition_variable& wake_ = sync_->wake;
  std::condition_variable& ended_ = sync_->ended;
  std::deque<std::shared_ptr<Job>> queue_;
  std::vector<std::shared_ptr<Job>> finished_;
  CollectiveFailure failure_;
  bool running_ = false;
  bool stop_ = false;
  bool watches_ = false;  // streams
  // With the interpreter's lock:
  struct Shown {
    std::uint64_t number = 0;  // 0: the call that shows it has not returned
    py::object memory;
  };
  std::vector<std::shared_ptr<Shown>> shown_;
  bool ended_once_ = false;
};

bool is_main_thread();  // with the interpreter's lock
// Raises what the job ended with, or gives its result.
py::object result_of(const Job& job);
[[noreturn]] void raise_failed(const Status& status, const CollectiveFailure& failure);
// (address, bytes, rank, whether it is received) of each message.
using MessageTuples = std::vector<std::tuple<std::uintptr_t, std::size_t, int, bool>>;
std::vector<StreamMessage> messages_of(const MessageTuples& messages);
// Of an operation, in seconds; none: the communicator's.
std::optional<Timeout> limit_of(std::optional<double> seconds);
void bind_collectives(py::module_& module);

}  // namespace fairway::python

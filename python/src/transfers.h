#pragma once

#include <deque>
#include <span>
#include <unordered_map>

#include "memory.h"
#include "pages.h"

namespace fairway::python {

class Tracker;

// What a transfer needs until it completes: registrations, what views lent, arrays, and the indexes that it borrows.
struct Pins {
  std::vector<std::shared_ptr<Registration>> registrations;
  std::vector<std::shared_ptr<Imported>> imported;
  std::vector<std::shared_ptr<Hold>> holds;
  std::vector<py::object> objects;
  std::vector<std::vector<std::uint64_t>> indexes;
};

// Pins of what has completed. The end of an array may run Python code and other threads, which come back to us: so
// whoever completes transfers lets them go behind its last look at what threads share.
using LetGo = std::vector<Pins>;

// A request that can be submitted, once or many times.
struct PyRequest {
  Request request;
  std::string message;  // of its notification
  std::shared_ptr<Tracker> tracker;
  Pins pins;
  py::object stream;  // the event recorded on it and the stream; none: no stream
  bool stream_waits = false;
  py::object callback = py::none();
};

struct Failed {
  std::size_t index;
  Status status;
};

// What one call submitted. Shared by the Python object and the tracker, until all of it has completed.
struct Work {
  std::shared_ptr<Tracker> tracker;
  std::vector<TransferId> ids;
  std::size_t left = 0;
  std::size_t next = 0;     // of those that are waited for: the first not collected
  bool polled = false;      // Deliver::to_poll, since asyncio or a callback is to be told
  bool collecting = false;  // a thread waits without the interpreter's lock
  bool submitting = false;  // more of it is to come: it has not ended when all that was taken has
  bool atomic = false;
  std::uint64_t bytes = 0;
  std::uint64_t old_value = 0;
  std::vector<Failed> failed;
  Pins pins;
  std::vector<py::object> callbacks;

  // The lock stays taken.
  void completed(std::size_t index, const Completion& completion, LetGo& over);
  // Those that have completed, from `next` on, and are not being waited for. Does not wait.
  void collect(LetGo& over);
  [[nodiscard]] TransferId first() const;  // raises where none was taken
};

struct Transfer {
  explicit Transfer(std::shared_ptr<Work> started) : work(std::move(started)) {}
  Transfer(Transfer&&) = default;
  ~Transfer();
  std::shared_ptr<Work> work;
};

// One engine's transfers that are under way, as far as no Python object stands for them.
class Tracker : public std::enable_shared_from_this<Tracker> {
 public:
  explicit Tracker(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  [[nodiscard]] Session& session() const { return *session_; }
  [[nodiscard]] const std::shared_ptr<Session>& shared_session() const { return session_; }
  // Takes all of them, waiting for room where they are more than the queue holds; raises for the one refused.
  py::object submit(std::span<PyRequest* const> requests, std::span<const py::object> keep);
  void abandon(std::shared_ptr<Work> work);
  void reap();         // abandoned ones that have completed
  std::size_t poll();  // those that are polled: completes them and runs their callbacks
  void wait(const std::shared_ptr<Work>& work, const Deadline& deadline);
  void closed();  // after the engine was: whatever is left ends
  [[nodiscard]] bool has_polled() const { return !polled_.empty(); }
  [[nodiscard]] PageMarks& page_marks() { return page_marks_; }
  [[nodiscard]] const std::shared_ptr<SpareNumbers>& spare_numbers() const { return spare_numbers_; }

 private:
  // A call's transfers while it submits them: however that ends, the tracker knows those that were taken.
  class Submitting {
   public:
    Submitting(Tracker& tracker, const std::shared_ptr<Work>& work);
    ~Submitting();
    Submitting(const Submitting&) = delete;
    Submitting& operator=(const Submitting&) = delete;

   private:
    Tracker& tracker_;
    const std::shared_ptr<Work> work_;
  };
  std::vector<std::shared_ptr<Work>> take_ended(std::size_t& total, LetGo& over);
  void call_back(const std::vector<std::shared_ptr<Work>>& ended);
  void wait_readable(Timeout most);
  void wait_polled(const Work& work, const Deadline& deadline);
  void make_room(const std::shared_ptr<Work>& work);
  void wait_for_next(Work& work, Timeout most, LetGo& over);

  const std::shared_ptr<Session> session_;
  std::unordered_map<const Work*, std::shared_ptr<Work>> polled_;
  std::deque<std::shared_ptr<Work>> abandoned_;  // those that were looked at last are last
  std::vector<std::shared_ptr<Work>> ended_;     // whose callbacks the next poll runs
  PageMarks page_marks_;
  const std::shared_ptr<SpareNumbers> spare_numbers_ = std::make_shared<SpareNumbers>();
};

bool in_event_loop();  // this thread runs an asyncio loop
void check_callable(py::handle callback);

PyEngine open_engine(const py::kwargs& options);
EngineOptions engine_options(const py::dict& options);
PyEngine engine_of(std::shared_ptr<Engine> engine, std::string name);
void bind_requests(py::module_& module);
void bind_transfers(py::module_& module);
PyRequest make_move(Operation operation, py::handle local, py::handle remote, const py::kwargs& options);
using PageUnit = Whole<std::uint64_t, "each of page_bytes and the units">;
PyRequest make_pages(Operation operation, py::handle local, py::handle remote, py::handle local_index,
                     py::handle remote_index, std::uint64_t page_bytes, std::optional<PageUnit> local_unit,
                     std::optional<PageUnit> remote_unit, const py::kwargs& options);
// Page numbers: the caller's own array when it is one of 64-bit integers in a row, else a copy; `pins` holds either.
std::span<const std::uint64_t> page_numbers(py::handle given, const std::shared_ptr<SpareNumbers>& spare, Pins& pins,
                                            const char* side);
PyRequest make_extents(const std::string& operation, const py::sequence& locals, const py::sequence& remotes,
                       py::handle table, const py::kwargs& options);
PyRequest make_message(Operation operation, const PyPeer& peer, std::uint64_t tag, py::handle local,
                       const py::kwargs& options);
PyRequest make_atomic(Operation operation, py::handle target, std::uint64_t operand, std::uint64_t expected,
                      const py::kwargs& options);
py::object submit_one(PyRequest request);

}  // namespace fairway::python

#pragma once

#include <deque>
#include <span>
#include <unordered_map>

#include "memory.h"
#include "pages.h"

namespace fairway::python {

class Tracker;
struct Queue;
struct Work;

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
  std::shared_ptr<Queue> queue;  // whose poll gives it; null: none
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
  bool polled = false;      // Deliver::to_poll, since asyncio, a callback or a queue is to be told
  bool collecting = false;  // a thread waits without the interpreter's lock
  bool submitting = false;  // more of it is to come: it has not ended when all that was taken has
  bool atomic = false;
  std::uint64_t bytes = 0;
  std::uint64_t old_value = 0;
  PeerId peer = {};      // Completion::peer
  std::uint8_t far = 0;  // a bit (1 << Cancelled::Far) for each way in which a request of it ended
  std::vector<Failed> failed;
  Pins pins;
  std::vector<py::object> callbacks;
  std::shared_ptr<Queue> queue;  // whose poll completes it; null: Engine.poll, or nobody has to

  // The lock stays taken.
  void completed(std::size_t index, const Completion& completion, LetGo& over);
  // Those that have completed, from `next` on, and are not being waited for. Does not wait.
  void collect(LetGo& over);
  [[nodiscard]] TransferId first() const;  // raises where none was taken
};

// Of a request whose own completion will not be heard of.
inline Completion unheard(TransferId id, const Status& why) {
  return {id, why.with_effect(Effect::unknown)};
}

struct Transfer {
  explicit Transfer(std::shared_ptr<Work> started) : work(std::move(started)) {}
  Transfer(Transfer&&) = default;
  ~Transfer();
  std::shared_ptr<Work> work;
};

// Those that one poll completes: the engine's, or a queue's.
struct Polled {
  std::unordered_map<const Work*, std::shared_ptr<Work>> live;
  std::deque<std::shared_ptr<Work>> ended;  // and the next poll is to say so
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
  bool wait(const std::shared_ptr<Work>& work, const Deadline& deadline);  // false: it was not done in time
  // The first of `all` that has ended, once one has.
  std::size_t wait_any(std::span<const std::shared_ptr<Work>> all, const Deadline& deadline);
  std::shared_ptr<Queue> make_queue(std::uint32_t capacity);
  // Those of the queue's that have ended, `most` at the most. Does not wait.
  std::vector<std::shared_ptr<Work>> poll(Queue& queue, std::size_t most);
  void forget(const Queue& queue);  // it has ended
  void closed();                    // after the engine was: whatever is left ends
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
  [[nodiscard]] Polled& polled_with(const Work& work);
  std::size_t gather(Polled& into, QueueId from, std::size_t most, LetGo& over);
  void call_back(const std::deque<std::shared_ptr<Work>>& ended);
  void end_all(Polled& of, QueueId from);
  void reap_queues();
  void wait_readable(Timeout most);
  bool wait_polled(const Work& work, const Deadline& deadline);
  bool collect_any(std::span<const std::shared_ptr<Work>> all, bool polls, Timeout most);
  void make_room(const std::shared_ptr<Work>& work);
  void wait_for_next(Work& work, Timeout most, LetGo& over);

  const std::shared_ptr<Session> session_;
  Polled polled_;                                // by Engine.poll
  std::vector<std::shared_ptr<Queue>> queues_;   // that have not ended
  std::deque<std::shared_ptr<Work>> abandoned_;  // those that were looked at last are last
  PageMarks page_marks_;
  const std::shared_ptr<SpareNumbers> spare_numbers_ = std::make_shared<SpareNumbers>();
};

py::object result_of(const Work& work);  // raises its error
// `of_several`: with its index, and all that failed.
[[noreturn]] void raise_failed(const Failed& first, const std::vector<Failed>& failed, bool of_several);
void check_not_queued(const Work& work);  // raises while its queue is what completes it
bool in_event_loop();                     // this thread runs an asyncio loop
void check_callable(py::handle callback);

PyEngine open_engine(const py::kwargs& options);
EngineOptions engine_options(const py::dict& options);
PyEngine engine_of(std::shared_ptr<Engine> engine, std::string name);
void bind_transfers(py::module_& module);

}  // namespace fairway::python

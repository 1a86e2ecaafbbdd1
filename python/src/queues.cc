#include "queues.h"

#include <chrono>
#include <thread>

namespace fairway::python {
namespace {

using Most = Whole<std::size_t, "most">;

py::list poll(PyQueue& self, Most most) {
  py::list out;
  for (auto& work : self.tracker->poll(*self.queue, most)) out.append(Transfer(std::move(work)));
  return out;
}

py::object wait(PyQueue& self, Seconds timeout) {
  const Deadline deadline(timeout);
  Session& session = self.tracker->session();
  Engine& engine = session.engine();
  const QueueId id = self.queue->id;
  bool closed = session.closed();
  for (;;) {
    if (auto found = self.tracker->poll(*self.queue, 1); !found.empty()) return py::cast(Transfer(std::move(found[0])));
    if (closed) {
      // What is in flight still has been taken by the thread that closes, which gives it to the queue in a moment.
      if (self.queue->polled.live.empty() || deadline.passed())
        raise(ErrorCode::closed, "the engine is closed, and the queue is empty");
      handle_signals();
      const Unlocked meanwhile;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const Status status = unlocked([&] { return engine.wait(id, deadline.slice()); });
    if (status.code() == ErrorCode::closed) {
      const Unlocked meanwhile;
      engine.close();  // returns once the other thread's call has ended everything
      closed = true;
      continue;
    }
    if (!status && status.code() != ErrorCode::timed_out) raise(status);
    handle_signals();
    if (!status && deadline.passed()) raise(status);
  }
}

void end(PyQueue& self) {
  Session& session = self.tracker->session();
  Engine& engine = session.engine();
  if (self.queue->over || session.closed()) return;
  if (!self.queue->polled.ended.empty())
    raise(ErrorCode::invalid_argument, "transfers of the queue have completed and were not polled: poll them first");
  check(engine.end_queue(self.queue->id));
  self.queue->over = true;
  self.tracker->forget(*self.queue);
}

}  // namespace

std::shared_ptr<Queue> queue_of(py::handle given, const Tracker& tracker) {
  if (!is<PyQueue>(given))
    raise(ErrorCode::invalid_argument,
          std::string("queue is a Queue, from Engine.make_queue, not ") + Py_TYPE(given.ptr())->tp_name);
  const auto& queue = as<PyQueue>(given);
  if (queue.tracker.get() != &tracker) raise(ErrorCode::invalid_argument, "queue names another engine's queue");
  return queue.queue;
}

void bind_queues(py::module_& module) {
  py::class_<PyQueue>(module, "Queue",
                      "A completion queue, from Engine.make_queue: the end of a transfer that names it (queue=) comes "
                      "by its poll() and\n"
                      "wait(), and by nothing else. So two libraries that share an engine do not take each other's.\n\n"
                      "Several threads may poll one queue; each transfer comes once. What they give equals, and hashes "
                      "as, the Transfer\n"
                      "that the call gave. Lasts until end(), the end of `with`, or Engine.close.")
      .def("poll", &poll, py::arg("most") = 64,
           "poll(most=64) -> list of Transfer\n\n"
           "Those that have completed, well or not: ask each for its result(). Never waits.")
      .def("wait", &wait, py::arg("timeout") = py::none(),
           "wait(timeout=None) -> Transfer\n\n"
           "The next one that has completed; raises TimedOut after `timeout` seconds.")
      .def("end", &end,
           "end()\n\n"
           "Ends the queue. Refused (InvalidArgument) while transfers that name it are in flight or were not polled.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__",
           [](PyQueue& self, py::handle kind, py::handle, py::handle) {
             if (kind.is_none())
               end(self);
             else
               self.queue->dropped = true;  // it ends with its transfers
           })
      .def("__repr__", [](const PyQueue& self) {
        return "<fairway.Queue, " + std::to_string(self.queue->polled.live.size()) + " in flight" +
               (self.queue->over ? ", ended>" : ">");
      });
  auto engine = static_cast<py::class_<PyEngine>>(module.attr("Engine"));
  engine.def(
      "make_queue",
      [](PyEngine& e, Whole<std::uint32_t, "capacity"> capacity) {
        return PyQueue(e.tracker, e.tracker->make_queue(capacity));
      },
      py::arg("capacity"),
      "make_queue(capacity) -> Queue\n\n"
      "A completion queue for `capacity` transfers that name it and were not polled; one beyond gets QueueFull.\n\n"
      "At most 64 at a time.");
}

}  // namespace fairway::python

#pragma once

#include "transfers.h"

namespace fairway::python {

// A completion queue: what Python's Queue, the tracker and the transfers that name it share.
struct Queue {
  QueueId id;
  Polled polled;
  bool over = false;     // it has ended
  bool dropped = false;  // nobody polls it any more: it ends once its transfers have
};

struct PyQueue {
  PyQueue(std::shared_ptr<Tracker> of, std::shared_ptr<Queue> made) : tracker(std::move(of)), queue(std::move(made)) {}
  PyQueue(PyQueue&&) = default;
  ~PyQueue() {
    if (queue != nullptr) queue->dropped = true;
  }
  std::shared_ptr<Tracker> tracker;
  std::shared_ptr<Queue> queue;
};

// The queue that a request names; raises where it is none of this engine's.
std::shared_ptr<Queue> queue_of(py::handle given, const Tracker& tracker);
void bind_queues(py::module_& module);  // after bind_engine

}  // namespace fairway::python

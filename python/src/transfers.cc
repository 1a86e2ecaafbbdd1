#include "transfers.h"

// What Python sees of a transfer.
namespace fairway::python {

void raise_failed(const Failed& first, const std::vector<Failed>& failed, bool of_several) {
  py::object error = exception_of(first.status);
  if (of_several) {
    error.attr("index") = first.index;
    py::list all;
    for (const Failed& one : failed) all.append(py::make_tuple(one.index, exception_of(one.status)));
    error.attr("failures") = all;
  }
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

py::object result_of(const Work& work) {
  if (!work.failed.empty()) raise_failed(work.failed[0], work.failed, work.ids.size() > 1);
  return py::int_(work.atomic ? work.old_value : work.bytes);
}

namespace {

struct PyCancelled {
  bool fenced = true;
  std::string held_by;
  std::string far_side;
};

// Of all its requests, of which `far` has a bit for each answer.
const char* far_side_of(unsigned far) {
  static constexpr const char* kFar[] = {"nothing", "all", "partial", "unknown"};
  for (unsigned i = 0; i < 4; ++i)
    if (far == 1u << i) return kFar[i];
  constexpr unsigned kUnknown = 1u << static_cast<unsigned>(Cancelled::Far::unknown);
  return far == 0 || (far & kUnknown) != 0 ? "unknown" : "partial";
}

PyCancelled cancel(const Transfer& transfer, Seconds timeout) {
  PyCancelled out;
  Work& work = *transfer.work;
  const Timeout whole = timeout_of(timeout);
  unsigned far = 0;
  std::size_t collected = 0;  // those before it were, by now, perhaps by a thread that has yet to say so
  for (std::size_t i = work.polled ? 0 : work.next; work.left > 0 && i < work.ids.size(); ++i) {
    const auto cancelled =
        unlocked([&, id = work.ids[i]] { return work.tracker->session().engine().cancel(id, whole); });
    if (!cancelled) {
      if (cancelled.status().code() != ErrorCode::not_found) raise(cancelled.status());
      collected = i + 1;
      continue;
    }
    far |= 1u << static_cast<unsigned>(cancelled->far_side);
    if (cancelled->fenced) continue;
    out.fenced = false;
    out.held_by = cancelled->held_by;
  }
  if (work.left > 0 && !work.polled && work.next < collected)
    far |= 1u << static_cast<unsigned>(Cancelled::Far::unknown);
  out.far_side = far_side_of(work.left > 0 ? far | work.far : work.far);
  return out;
}

std::string state_of(const Work& work) {
  if (work.left > 0) return std::to_string(work.left) + " in flight";
  return work.failed.empty() ? "ok" : work.failed[0].status.to_string();
}

}  // namespace

void bind_transfers(py::module_& module) {
  py::class_<PyCancelled>(module, "Cancelled", "What Transfer.cancel did, on both sides.")
      .def_readonly("fenced", &PyCancelled::fenced, "nothing can touch the caller's memory any more")
      .def_readonly("held_by", &PyCancelled::held_by, "not fenced: the peer that may still touch it")
      .def_readonly("far_side", &PyCancelled::far_side, "'nothing', 'all', 'partial' or 'unknown' has happened there")
      .def("__bool__", [](const PyCancelled& c) { return c.fenced; })
      .def("__repr__", [](const PyCancelled& c) {
        return "<fairway.Cancelled " + (c.fenced ? std::string("fenced") : "not fenced, held by " + c.held_by) +
               ", far side: " + c.far_side + ">";
      });

  py::class_<Transfer>(
      module, "Transfer",
      "What a call started: one request or, from Engine.submit, several. It completes exactly once.\n\n"
      "wait() or `await` gives the bytes moved (of an atomic, the value before) or raises what went\n"
      "wrong. What it uses is kept until then; the Transfer itself may be dropped.")
      .def(
          "wait",
          [](const Transfer& t, Seconds timeout) {
            if (!t.work->tracker->wait(t.work, Deadline(timeout)))
              raise(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
            return result_of(*t.work);
          },
          py::arg("timeout") = py::none(),
          "wait(timeout=None) -> int\n\n"
          "Waits `timeout` seconds (None: for ever) without the interpreter's lock; Ctrl-C interrupts.\n\n"
          "Returns the bytes moved, or of an atomic the value before. Raises TimedOut (the transfer goes on) or the\n"
          "transfer's own error; of several the first one, with `index` and all `failures`.")
      .def_property_readonly(
          "done",
          [](const Transfer& t) {
            Tracker& tracker = *t.work->tracker;
            if (t.work->left == 0) return true;
            LetGo over;
            if (!t.work->polled)
              t.work->collect(over);
            else if (t.work->queue == nullptr)
              tracker.poll();
            return t.work->left == 0;
          },
          "whether all of it has completed; moves on what waits for Engine.poll")
      .def(
          "result",
          [](const Transfer& t) {
            if (t.work->left > 0) raise(ErrorCode::timed_out, "the transfer is still in flight");
            return result_of(*t.work);
          },
          "result() -> int\n\n"
          "As wait(), of a transfer that is done.")
      .def("cancel", &cancel, py::arg("timeout") = 5.0,
           "cancel(timeout=5.0) -> CancelOutcome\n\n"
           "Ends it early. It still completes once, with Cancelled or, if it was faster, as it would have.\n\n"
           "The answer is true when it is fenced: no byte can land in, or be read from, the caller's memory any more.")
      .def(
          "explain",

          [](const Transfer& t) {
            const Engine& engine = t.work->tracker->session().engine();
            const TransferId id = t.work->first();
            return explained([&] { return engine.explain(id); });
          },
          "explain() -> Explanation\n\n"
          "Which way it took and why, what it should reach and reached; of several, the first.")
      .def(
          "add_done_callback",
          [](const Transfer& t, py::object call) {
            check_callable(call);
            if (t.work->left == 0) return (void)call(py::cast(Transfer(t.work)));
            check_not_queued(*t.work);
            if (!t.work->polled)
              raise(ErrorCode::unsupported, "the transfer is waited for: give callback= when it is started");
            t.work->callbacks.push_back(std::move(call));
          },
          py::arg("callback"),
          "add_done_callback(callback)\n\n"
          "Calls callback(transfer) from Engine.poll or the event loop, once it is done.")
      .def_property_readonly(
          "peer",
          [](const Transfer& t) -> py::object {
            const Work& work = *t.work;
            if (!work.peer) return py::none();
            return py::cast(PyPeer{work.tracker->shared_session(), work.tracker, work.peer, ""});
          },
          "of a receive that is done: the Peer whose message it was. None: it is not done, it was of any peer and got "
          "no message, or it is no receive")
      .def_property_readonly(
          "polled", [](const Transfer& t) { return t.work->polled; },
          "started under asyncio, with a callback or a queue: Engine.poll, the loop or the queue's poll completes it")
      .def_property_readonly("engine_fd", [](const Transfer& t) { return t.work->tracker->session().engine().fd(); })
      .def("_poll", [](const Transfer& t) { return t.work->tracker->poll(); })
      .def("__await__",
           [](py::object self) { return py::module_::import("fairway.aio").attr("_await_transfer")(self); })
      .def("__len__", [](const Transfer& t) { return t.work->ids.size(); })
      // A queue's poll or a callback gives another object of the same transfer.
      .def(
          "__eq__", [](const Transfer& a, const Transfer& b) { return a.work == b.work; }, py::is_operator())
      .def("__hash__", [](const Transfer& t) { return std::hash<const Work*>()(t.work.get()); })
      .def("__repr__", [](const Transfer& t) {
        return "<fairway.Transfer of " + std::to_string(t.work->ids.size()) +
               (t.work->ids.size() == 1 ? " request, " : " requests, ") + state_of(*t.work) + ">";
      });
}

}  // namespace fairway::python

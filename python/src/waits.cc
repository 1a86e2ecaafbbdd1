#include <unordered_set>
#include <utility>

#include "module.h"
#include "transfers.h"

// Calls that wait for several transfers, for all to a peer, or for a message to come.
namespace fairway::python {
namespace {

constexpr Timeout kAtOnce = std::chrono::milliseconds(50);  // Ctrl-C may wait for so long

struct PyProbed {
  PyPeer peer;
  std::uint64_t tag = 0;
  std::uint64_t size_bytes = 0;
};

std::vector<py::object> transfers_of(const PyEngine& engine, const py::object& given) {
  if (!py::isinstance<py::iterable>(given) || py::isinstance<py::str>(given))
    raise(ErrorCode::invalid_argument,
          "transfers is a list of Transfers, not " + py::cast<std::string>(py::repr(given)));
  std::vector<py::object> out;
  for (const py::handle item : py::tuple(given)) {
    if (!is<Transfer>(item))
      raise(ErrorCode::invalid_argument,
            std::string("transfers is a list of Transfers, and one is of type ") + Py_TYPE(item.ptr())->tp_name);
    const auto& work = as<Transfer>(item).work;
    if (work->tracker != engine.tracker)
      raise(ErrorCode::invalid_argument, "one of the transfers is another engine's: ask the engine that started it");
    check_not_queued(*work);
    out.push_back(py::reinterpret_borrow<py::object>(item));
  }
  return out;
}

py::object wait_any(const PyEngine& self, const py::object& given, Seconds timeout) {
  const Deadline deadline(timeout);
  const auto transfers = transfers_of(self, given);
  if (transfers.empty()) raise(ErrorCode::invalid_argument, "there are no transfers to wait for");
  std::vector<std::shared_ptr<Work>> works;  // each once
  std::vector<std::size_t> places;
  std::unordered_set<const Work*> known;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto& work = as<Transfer>(transfers[i]).work;
    if (!known.insert(work.get()).second) continue;
    works.push_back(work);
    places.push_back(i);
  }
  return transfers[places[self.tracker->wait_any(works, deadline)]];
}

py::list wait_all(const PyEngine& self, const py::object& given, Seconds timeout) {
  const Deadline deadline(timeout);
  const auto transfers = transfers_of(self, given);
  std::optional<Failed> late;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const auto& work = as<Transfer>(transfers[i]).work;
    LetGo over;
    if (late && !work->polled) work->collect(over);
    if (!late && !self.tracker->wait(work, deadline))
      late = {i, {ErrorCode::timed_out, "some of the transfers are still in flight; wait again, or cancel them"}};
  }
  std::vector<Failed> failed;
  py::list results;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const Work& work = *as<Transfer>(transfers[i]).work;
    if (work.left > 0) continue;
    if (work.failed.empty())
      results.append(result_of(work));
    else
      failed.push_back({i, work.failed[0].status});
  }
  if (late || !failed.empty()) raise_failed(late ? *late : failed[0], failed, true);
  return results;
}

// Of all that was submitted before the call: asked again it would wait for what came meanwhile, too.
template <class Call>
void settle(PyEngine& self, Seconds timeout, Call call) {
  Engine& engine = self.session->engine();
  const Timeout whole = timeout_of(timeout);
  check(whole <= kAtOnce ? unlocked([&] { return call(engine, whole); })
                         : self.session->in_one([=, &engine] { return call(engine, whole); }));
}

void flush(PyEngine& self, py::handle peer, Seconds timeout) {
  const PeerId id = peer_id_of(self, peer);
  settle(self, timeout, [id](Engine& engine, Timeout whole) { return engine.flush(id, whole); });
}

void drain(PyEngine& self, Seconds timeout) {
  settle(self, timeout, [](Engine& engine, Timeout whole) { return engine.drain(whole); });
}

py::object probe(PyEngine& self, Whole<std::uint64_t, "tag"> tag, py::handle peer, Seconds timeout) {
  Engine& engine = self.session->engine();
  const PeerId from = peer.is_none() ? PeerId{} : peer_id_of(self, peer);
  const auto found = wait_in_slices(Deadline(timeout), [&](Timeout slice) { return engine.probe(from, tag, slice); });
  if (found.status().code() == ErrorCode::timed_out) return py::none();
  const Probed& message = take(found);
  return py::cast(PyProbed{peer_of(self, message.peer, ""), message.tag, message.size_bytes});
}

const char* fence_state(PyEngine& self, py::handle given) {
  if (!is<PyRegion>(given))
    raise(ErrorCode::invalid_argument,
          std::string("region is a Region, from register or allocate, not ") + Py_TYPE(given.ptr())->tp_name);
  const auto& registration = *as<PyRegion>(given).registration;
  if (registration.session() != self.session)
    raise(ErrorCode::invalid_argument, "the region was registered with another engine");
  switch (self.session->engine().fence_state(registration.region())) {
    case Fence::registered: return "registered";
    case Fence::pending: return "pending";
    case Fence::fenced: return "fenced";
    case Fence::unknown: break;
  }
  return "unknown";
}

constexpr const char* kAnyText = R"(wait_any(transfers, timeout=None) -> Transfer

Waits until one of them is done, well or not, and gives it: of several the first in their order.

Leave out those that you have had: one that is done is given again. Raises TimedOut after `timeout` seconds.)";
constexpr const char* kAllText = R"(wait_all(transfers, timeout=None) -> list of int

Waits until all are done and gives what each one's result() does, in their order.

If some have failed it raises the first one's error, with its `index` in the list and all `failures`, once all are done.
Raises TimedOut after `timeout` seconds, with the `index` of the first that is in flight and those that have failed by
then as `failures`; what is done stays so.)";
constexpr const char* kFlushText = R"(flush(peer, timeout=None)

Waits until all that any thread had submitted to the peer is complete, well or not.

Receives are left out: those end when the peer sends. What is submitted meanwhile is not waited for. Transfers of a
queue, with a callback or under asyncio are there to be polled then.)";
constexpr const char* kDrainText = R"(drain(timeout=None)

As flush, of all peers.)";
constexpr const char* kProbeText = R"(probe(tag, peer=None, timeout=0.0) -> Probed or None

The message that the next receive of this tag would take, of that peer or of any; takes nothing. None: there is none
within `timeout` seconds.

found.peer.receive(found.tag, buffer) then takes it, unless another thread's receive does first. A message for which a
receive waits is not found.)";
constexpr const char* kFenceText = R"(fence_state(region) -> str

How far the end of a Region has come, without waiting: 'registered', 'pending' (deregister or close was called, and
somebody may still touch the memory), 'fenced' (nothing touches it any more) or 'unknown'.)";

}  // namespace

void bind_waits(py::module_& module) {
  py::class_<PyProbed>(module, "Probed", "A message that waits for its receive, as Engine.probe finds it.")
      .def_readonly("peer", &PyProbed::peer)
      .def_readonly("tag", &PyProbed::tag)
      .def_readonly("nbytes", &PyProbed::size_bytes)
      .def("__repr__", [](const PyProbed& p) {
        return "<fairway.Probed " + bytes_for_people(p.size_bytes) + ", tag " + std::to_string(p.tag) + ">";
      });
  auto engine = static_cast<py::class_<PyEngine>>(module.attr("Engine"));
  engine.def("wait_any", &wait_any, py::arg("transfers"), py::arg("timeout") = py::none(), kAnyText)
      .def("wait_all", &wait_all, py::arg("transfers"), py::arg("timeout") = py::none(), kAllText)
      .def("flush", &flush, py::arg("peer"), py::arg("timeout") = py::none(), kFlushText)
      .def("drain", &drain, py::arg("timeout") = py::none(), kDrainText)
      .def("probe", &probe, py::arg("tag"), py::arg("peer") = py::none(), py::arg("timeout") = 0.0, kProbeText)
      .def("fence_state", &fence_state, py::arg("region"), kFenceText);
}

}  // namespace fairway::python

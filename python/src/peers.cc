#include <span>

#include "module.h"
#include "requests.h"

namespace fairway::python {
namespace {

using Tag = Whole<std::uint64_t, "tag">;

Engine& open_engine_of(const PyPeer& peer) {
  Engine& engine = peer.session->engine();
  if (peer.session->closed()) raise(ErrorCode::closed, "the engine is closed");
  return engine;
}

}  // namespace

PyPeer peer_of(const PyEngine& engine, PeerId id, std::string name) {
  return {engine.session, engine.tracker, id, std::move(name)};
}

PeerId peer_id_of(const PyEngine& self, py::handle given) {
  if (!is<PyPeer>(given))
    raise(ErrorCode::invalid_argument,
          std::string("peer is a Peer, from Engine.connect, not ") + Py_TYPE(given.ptr())->tp_name);
  const auto& peer = as<PyPeer>(given);
  if (peer.session != self.session) raise(ErrorCode::invalid_argument, "the peer is another engine's");
  return peer.id;
}

void bind_peer(py::module_& module) {
  py::class_<PyPeer>(module, "Peer", "Another engine, in one of its lives: one that restarts is another Peer.")
      .def_readonly("name", &PyPeer::name, "as it was connected to, or as it names itself")
      .def_property_readonly("id", [](const PyPeer& p) { return py::make_tuple(p.id.slot, p.id.generation); })
      .def(
          "lookup",
          [](const PyPeer& p, const Text<"name">& name, Seconds timeout) {
            Engine& engine = open_engine_of(p);
            return PyRemote{import_until(Deadline(timeout), p.session, p.tracker,
                                         [&](Timeout slice) { return engine.lookup(p.id, name.value, slice); })};
          },
          py::arg("name"), py::arg("timeout") = 5.0,
          "lookup(name, timeout=5.0) -> RemoteRegion\n\nThe region that the peer published as `name`; waits for it.")
      .def(
          "import_region",
          [](const PyPeer& p, const py::object& description) {
            if (!py::isinstance<py::bytes>(description))
              raise(ErrorCode::invalid_argument, "description is bytes, as Engine.describe gives them, not " +
                                                     py::cast<std::string>(py::repr(description)));
            const auto bytes = py::cast<std::string>(description);
            Engine& engine = open_engine_of(p);
            return PyRemote{import_until(Deadline(0), p.session, p.tracker, [&](Timeout) {
              return engine.import_region(p.id, std::as_bytes(std::span(bytes)));
            })};
          },
          py::arg("description"),
          "import_region(description) -> RemoteRegion\n\nThe region that Engine.describe gave these bytes for.")
      .def(
          "send",
          [](const PyPeer& p, Tag tag, py::handle from, const py::kwargs& o) {
            return submit_one(make_message(Operation::send, p, tag, from, o));
          },
          py::arg("tag"), py::arg("local"),
          "send(tag, local, **options) -> Transfer\n\n"
          "Sends a contiguous array, or a list of them one behind the other, to the peer's receive of the same tag.\n"
          "Options as for Engine.write, but notify.\n"
          "With local_completion=True up to 8 KiB are complete once they are copied, received or not.")
      .def(
          "receive",
          [](const PyPeer& p, Tag tag, py::handle into, const py::kwargs& o) {
            return submit_one(make_message(Operation::receive, p, tag, into, o));
          },
          py::arg("tag"), py::arg("local"),
          "receive(tag, local, **options) -> Transfer\n\n"
          "Receives into a contiguous array, or into a list of them, which the message's bytes fill one by one; wait() "
          "gives\n"
          "the message's bytes. In order for each (peer, tag). Several arrays have 64 MiB together at the most.")
      .def(
          "explain",
          [](const PyPeer& p) {
            const Engine& engine = open_engine_of(p);
            return explained([&] { return engine.explain(p.id); });
          },
          "explain() -> Explanation\n\nAll links to the peer.")
      .def(
          "disconnect",
          [](const PyPeer& p) {
            Engine& engine = open_engine_of(p);
            check(unlocked([&] { return engine.disconnect(p.id); }));
          },
          "disconnect()\n\nEnds the session with it: transfers in flight fail, and the peer is notified.")
      .def(
          "__eq__", [](const PyPeer& a, const PyPeer& b) { return a.session == b.session && a.id == b.id; },
          py::is_operator())
      .def("__hash__",
           [](const PyPeer& p) { return std::hash<std::uint64_t>()(std::uint64_t{p.id.slot} << 32 | p.id.generation); })
      .def("__repr__", [](const PyPeer& p) {
        return "<fairway.Peer " + (p.name.empty() ? "" : p.name + ", ") + "slot " + std::to_string(p.id.slot) +
               ", life " + std::to_string(p.id.generation) + ">";
      });
}

}  // namespace fairway::python

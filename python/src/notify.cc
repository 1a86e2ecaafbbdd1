#include "notify.h"

namespace fairway::python {
namespace {

std::string message_of(const py::object& given) {
  if (py::isinstance<py::str>(given)) return text_of(given, "a notification's message");
  if (!PyObject_CheckBuffer(given.ptr()))
    raise(ErrorCode::invalid_argument,
          std::string("a notification's message is bytes or a str, not ") + Py_TYPE(given.ptr())->tp_name);
  const auto bytes = py::reinterpret_steal<py::bytes>(PyBytes_FromObject(given.ptr()));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

using Immediate = Whole<std::uint32_t, "a notification's number">;

PyNotify make_event(Immediate immediate, const py::object& message) {
  PyNotify out{NotifyKind::event, immediate, message_of(message)};
  if (out.message.size() > kMaxNotifyMessage)
    raise(ErrorCode::invalid_argument,
          "a notification's message has at most 256 bytes, this one " + std::to_string(out.message.size()));
  return out;
}

}  // namespace

PyNotify notify_of(py::handle given) {
  if (py::isinstance<PyNotify>(given)) return py::cast<PyNotify>(given);
  if (py::isinstance<py::int_>(given)) return make_event(py::cast<Immediate>(given), py::bytes());
  if (py::isinstance<py::tuple>(given) && py::len(given) == 2) {
    const auto parts = py::reinterpret_borrow<py::tuple>(given);
    return make_event(py::cast<Immediate>(parts[0]), parts[1]);
  }
  raise(ErrorCode::invalid_argument,
        "notify is a number, (number, message) or what event(), counter() and signal() give");
}

Remote eight_bytes_of(py::handle target) {
  Remote remote = remote_of(target);
  if (remote.shape.total_bytes() != 8 || !runs_of(remote.shape).outer.empty())
    raise(ErrorCode::invalid_argument,
          "the target is 8 bytes in a row, as in remote[16:24], and not " + std::to_string(remote.shape.total_bytes()));
  return remote;
}

void bind_notify(py::module_& module) {
  py::class_<PyNotify>(module, "Notify",
                       "What the target sees after, and only after, all bytes. From event(), counter() or signal().")
      .def("__repr__", [](const PyNotify& n) {
        static constexpr const char* kNames[] = {"none", "event", "counter", "signal"};
        return std::string("<fairway.Notify ") + kNames[static_cast<int>(n.kind)] + " " + std::to_string(n.immediate) +
               ">";
      });
  module.def("event", &make_event, py::arg("immediate"), py::arg("message") = py::bytes(),
             "event(immediate, message=b'') -> Notify\n\n"
             "The target's notifications get (peer, immediate, message); up to 256 bytes.");
  module.def(
      "counter",
      [](Immediate immediate) {
        return PyNotify{NotifyKind::counter, immediate};
      },
      py::arg("immediate"), "counter(immediate) -> Notify\n\nThe target's counter of `immediate` grows by one.");
  module.def(
      "signal",
      [](py::handle target, Whole<std::uint64_t, "value"> value, bool add) {
        Remote remote = eight_bytes_of(target);
        return PyNotify{NotifyKind::signal, 0, "", remote.imported, remote.shape.offset, value, add};
      },
      py::arg("target"), py::arg("value") = 1, py::arg("add") = false,
      "signal(target, value=1, add=False) -> Notify\n\n"
      "An 8-byte word of a peer's region (remote[8:16]) is set to, or grows by, `value`; its region grants 'a'.");
}

}  // namespace fairway::python

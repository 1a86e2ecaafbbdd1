#include "module.h"

#include <thread>

#include "group.h"
#include "notify.h"
#include "queues.h"
#include "requests.h"

namespace fairway::python {
namespace {

// Until no thread is left that will want the interpreter's lock back from us; false: some are.
bool threads_return(double seconds) {
  const Deadline deadline(seconds);
  const py::gil_scoped_release unlocked;
  while (Unlocked::count() > 0 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return Unlocked::count() == 0;
}

// Code that copies or mocks calls __new__ of a class. Those that calls of ours alone make refuse it; an object of the
// others is none until __init__ was called, and every use of it says so.
void refuse_empty_objects(const py::module_& module) {
  for (const auto& [name, member] : py::cast<py::dict>(module.attr("__dict__"))) {
    if (PyType_Check(member.ptr()) == 0) continue;
    auto* const type = reinterpret_cast<PyTypeObject*>(member.ptr());
    py::detail::type_info* const info = py::detail::get_type_info(type);
    if (info == nullptr) continue;
    info->operator_new = &not_constructed;
    if (PyInstanceMethod_Check(py::object(member.attr("__dict__")["__init__"]).ptr())) continue;  // py::init's
    member.attr("__new__") = py::staticmethod(py::cpp_function(
        [](py::handle of, const py::args&, const py::kwargs&) -> py::object {
          throw py::type_error("cannot create 'fairway." + py::cast<std::string>(of.attr("__qualname__")) +
                               "' instances");
        },
        py::name("__new__")));
  }
}

}  // namespace
}  // namespace fairway::python

PYBIND11_MODULE(_fairway, module) {
  using namespace fairway::python;
  module.doc() = "The compiled part of fairway.";
  py::options texts;  // each text begins with how Python writes the call; test_surface.py compares it with the stubs
  texts.disable_function_signatures();
  module.attr("__version__") = FAIRWAY_VERSION;
  (void)forks();  // from now on a child knows that it is one
  module.def("_threads_return", &threads_return, py::arg("seconds"));
  bind_observe(module);
  bind_memory(module);
  bind_remote(module);
  bind_notify(module);
  bind_requests(module);
  bind_transfers(module);
  bind_engine(module);
  bind_news(module);
  bind_waits(module);
  bind_queues(module);
  bind_streams(module);
  bind_collectives(module);
  refuse_empty_objects(module);
}

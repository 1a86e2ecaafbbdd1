#include "module.h"

#include "group.h"
#include "notify.h"
#include "transfers.h"

PYBIND11_MODULE(_fairway, module) {
  using namespace fairway::python;
  module.doc() = "The compiled part of fairway.";
  py::options texts;  // each text begins with how Python writes the call; test_surface.py compares it with the stubs
  texts.disable_function_signatures();
  module.attr("__version__") = FAIRWAY_VERSION;
  (void)forks();  // from now on a child knows that it is one
  bind_observe(module);
  bind_memory(module);
  bind_remote(module);
  bind_notify(module);
  bind_requests(module);
  bind_transfers(module);
  bind_engine(module);
  bind_streams(module);
  bind_collectives(module);
}

#include "module.h"

#include "notify.h"
#include "transfers.h"

PYBIND11_MODULE(_fairway, module) {
  using namespace fairway::python;
  module.doc() = "The compiled part of fairway.";
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
}

#pragma once

#include "memory.h"

namespace fairway::python {

// What the target of a transfer sees after, and only after, all its bytes.
struct PyNotify {
  NotifyKind kind = NotifyKind::none;
  std::uint32_t immediate = 0;
  std::string message = {};
  std::shared_ptr<Imported> remote = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
  bool add = false;
};

PyNotify notify_of(py::handle given);      // of notify=
Remote eight_bytes_of(py::handle target);  // what an atomic or a signal changes
void bind_notify(py::module_& module);

}  // namespace fairway::python

#pragma once

#include "common.h"

namespace fairway::python {

struct PyLoopback {
  std::shared_ptr<Loopback> meeting_place;
};

void bind_engine(py::module_& module);
void bind_observe(py::module_& module);
void bind_peer(py::module_& module);
void bind_news(py::module_& module);  // after bind_engine, as the next two
void bind_waits(py::module_& module);
void bind_streams(py::module_& module);
py::dict metrics_of(const Engine& engine);
py::dict port_counters_of(const Engine& engine);

// Longer texts of help().
extern const char* const kEngineText;
extern const char* const kOptionsText;
extern const char* const kWriteText;
extern const char* const kPagesText;
extern const char* const kReceiveText;

}  // namespace fairway::python

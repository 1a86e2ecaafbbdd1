#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>

#include <cxxabi.h>
#include <unistd.h>

#include "common.h"

namespace fairway::python {
namespace {

std::atomic<int> unlocked_threads{0};

// Where the interpreter ends, Python ends a thread that wants the lock by pthread_exit(), whose unwinding must not
// reach our destructors: they would end the process, or let go of Python's objects without the lock.
template <class Take>
auto take_or_stay(Take take) {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

}  // namespace

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

Unlocked::Counted::Counted() {
  unlocked_threads.fetch_add(1);
}
Unlocked::Counted::~Counted() {
  unlocked_threads.fetch_sub(1);
}
Unlocked::~Unlocked() {
  take_or_stay([this] { PyEval_RestoreThread(state_); });
}
int Unlocked::count() {
  return unlocked_threads.load();
}

Locked::Locked() {
  take_or_stay([this] { acquired_.emplace(); });
}

void* not_constructed(std::size_t) {
  throw py::type_error("the object is empty: __new__() made it, and no __init__() was called");
}

py::object exception_of(const Status& status) {
  return take_or_stay([&]() -> py::object {  // Python's code gives the lock to others, too
    return py::module_::import("fairway.errors")
        .attr("_make")(py::str(std::string(to_string(status.code()))), status.message(), status.peer(), status.link(),
                       py::str(std::string(to_string(status.effect()))), status.to_string());
  });
}

void raise(const Status& status) {
  const py::object error = exception_of(status);
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void raise(ErrorCode code, const std::string& message) {
  raise(Status(code, message));
}

std::uint64_t whole_number(py::handle given, const char* name, std::uint64_t most) {
  if (const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()))) {
    const std::uint64_t value = PyLong_AsUnsignedLongLong(index.ptr());
    if (PyErr_Occurred() == nullptr && value <= most) return value;
  }
  PyErr_Clear();
  raise(ErrorCode::invalid_argument, std::string(name) + " is a whole number from 0 to " + std::to_string(most) +
                                         ", not " + py::cast<std::string>(py::repr(given)));
}

std::optional<double> seconds_of(py::handle given, const char* name) {
  if (given.is_none()) return std::nullopt;
  const double seconds = PyFloat_AsDouble(given.ptr());
  const bool none = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (none || std::isnan(seconds))
    raise(ErrorCode::invalid_argument,
          std::string(name) + " is seconds, or None for ever, not " + py::cast<std::string>(py::repr(given)));
  return seconds;
}

std::string text_of(py::handle given, const char* name) {
  if (!py::isinstance<py::str>(given))
    raise(ErrorCode::invalid_argument, std::string(name) + " is a str, not " + py::cast<std::string>(py::repr(given)));
  Py_ssize_t size = 0;
  if (const char* const text = PyUnicode_AsUTF8AndSize(given.ptr(), &size))
    return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();
  raise(ErrorCode::invalid_argument,
        std::string(name) + " holds characters that UTF-8 does not have: " + py::cast<std::string>(py::repr(given)));
}

namespace {
constexpr double kMostSeconds = 1e9;

// Of the library's clocks, which count no negative time: what is left until a time that has passed is 0.
double from_now(double seconds) {
  if (std::isnan(seconds)) raise(ErrorCode::invalid_argument, "a timeout is seconds, or None for ever, not nan");
  return std::max(seconds, 0.0);
}
}  // namespace

Deadline::Deadline(std::optional<double> seconds) : forever_(!seconds || *seconds > kMostSeconds) {
  if (!forever_)
    end_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(from_now(*seconds)));
}

Timeout Deadline::slice() const {
  constexpr Timeout kSlice = std::chrono::milliseconds(50);
  if (forever_) return kSlice;
  const auto left = std::chrono::duration_cast<Timeout>(end_ - std::chrono::steady_clock::now());
  return std::clamp(left, Timeout(0), kSlice);
}

bool Deadline::passed() const {
  return !forever_ && std::chrono::steady_clock::now() >= end_;
}

Timeout timeout_of(std::optional<double> seconds) {
  if (!seconds || *seconds > kMostSeconds) return kForever;
  return std::chrono::duration_cast<Timeout>(std::chrono::duration<double>(from_now(*seconds)));
}

std::string bytes_for_people(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text,
                unit == 0 || value == static_cast<double>(static_cast<int>(value)) ? "%.0f %s" : "%.1f %s", value,
                kUnits[unit]);
  return text;
}

}  // namespace fairway::python

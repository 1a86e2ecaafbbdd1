#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "fairway/fairway.h"

// What every file of the module shares. All Python-visible state is touched with the interpreter's lock held, so it
// needs no other; the engine's own threads never call Python.
namespace fairway::python {

namespace py = pybind11;

// Raises the exception of the status's code (fairway.errors).
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise(ErrorCode code, const std::string& message);
py::object exception_of(const Status& status);

inline void check(const Status& status) {
  if (!status) raise(status);
}
template <class T>
T take(Result<T> result) {
  if (!result) raise(result.status());
  return std::move(*result);
}

// Seconds as a person writes them (None: for ever) against a clock; waits look at it between slices, so that Ctrl-C is
// seen.
class Deadline {
 public:
  explicit Deadline(std::optional<double> seconds);
  [[nodiscard]] Timeout slice() const;  // until the deadline, at most 50 ms
  [[nodiscard]] bool passed() const;
  [[nodiscard]] bool forever() const { return forever_; }

 private:
  std::chrono::steady_clock::time_point end_;
  bool forever_;
};

Timeout timeout_of(std::optional<double> seconds);

// Runs the handlers of signals that came; throws what they raise (KeyboardInterrupt).
inline void handle_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// `step(slice)` without the interpreter's lock, again while it says timed_out, until the deadline or a signal.
template <class Step>
auto wait_in_slices(const Deadline& deadline, Step step) {
  for (;;) {
    auto result = [&] {
      py::gil_scoped_release unlocked;
      return step(deadline.slice());
    }();
    const Status status = [&]() -> Status {
      if constexpr (std::is_same_v<decltype(result), Status>)
        return result;
      else
        return result.status();
    }();
    if (status.code() != ErrorCode::timed_out) return result;
    handle_signals();
    if (deadline.passed()) return result;
  }
}

// py::isinstance and py::cast look a type up by its name each time; these do so once.
template <class T>
PyTypeObject* type_of() {
  static PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(py::type::of<T>().release().ptr());
  return type;
}
template <class T>
bool is(py::handle object) {
  return Py_TYPE(object.ptr()) == type_of<T>() || PyType_IsSubtype(Py_TYPE(object.ptr()), type_of<T>()) != 0;
}
template <class T>
T& as(py::handle object) {  // after is<T>
  if (Py_TYPE(object.ptr()) != type_of<T>()) return py::cast<T&>(object);
  auto* const instance = reinterpret_cast<py::detail::instance*>(object.ptr());
  return *static_cast<T*>(instance->get_value_and_holder().value_ptr());
}

// What is given as `name`, as a T; raises InvalidArgument, which names it, when it is none.
template <class T>
T value_of(py::handle given, const char* name) {
  try {
    return py::cast<T>(given);
  } catch (const py::cast_error&) {
    raise(ErrorCode::invalid_argument, std::string(name) + " cannot be " + py::cast<std::string>(py::repr(given)));
  }
}

// One of a few words; raises InvalidArgument, which lists them, for any other.
template <class T, std::size_t kCount>
T choice(const std::string& given, const char* name, const std::pair<const char*, T> (&words)[kCount]) {
  std::string all;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (given == words[i].first) return words[i].second;
    all += std::string(i == 0 ? "'" : i + 1 == kCount ? " or '" : ", '") + words[i].first + "'";
  }
  raise(ErrorCode::invalid_argument, std::string(name) + " is " + all + ", not '" + given + "'");
}

// A whole number from 0 to `most`; raises InvalidArgument, which names it, for anything else.
std::uint64_t whole_number(py::handle given, const char* name, std::uint64_t most);

// An argument that is one, up to the largest T; pybind11's own refusal would list the call's signatures.
template <std::size_t kSize>
struct Name {
  char text[kSize];
  constexpr Name(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
};
template <class T, Name kName>
struct Whole {
  T value = 0;
  operator T() const { return value; }
};

std::string bytes_for_people(std::uint64_t bytes);

}  // namespace fairway::python

template <class T, fairway::python::Name kName>
struct pybind11::detail::type_caster<fairway::python::Whole<T, kName>> {
  using Argument = fairway::python::Whole<T, kName>;
  PYBIND11_TYPE_CASTER(Argument, const_name("int"));
  bool load(handle source, bool) {
    value.value = static_cast<T>(fairway::python::whole_number(source, kName.text, std::numeric_limits<T>::max()));
    return true;
  }
};

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

// Python's own objects are going: nothing may take the interpreter's lock any more.
bool interpreter_ends();

// While it lives, this thread is without the interpreter's lock. Threads of ours that will want the lock back are
// counted, so that the interpreter does not end under them (module.cc, _threads_return); one that comes later stays
// where it is for good.
class Unlocked {
 public:
  Unlocked() = default;
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  static int count();

  // Of itself: a thread that will take the lock.
  struct Counted {
    Counted();
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  };

 private:
  const Counted counted_;  // from before the lock goes until it is back
  PyThreadState* const state_ = PyEval_SaveThread();
};
// What `call`, which may wait for the engine's threads, gives without the lock.
template <class Call>
auto unlocked(Call call) {
  const Unlocked meanwhile;
  return call();
}
template <class Call>
py::object explained(Call call) {
  return py::cast(take(unlocked(std::move(call))));
}
// A thread of ours that Python does not know takes the lock, or stays where it is for good.
class Locked {
 public:
  Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  std::optional<py::gil_scoped_acquire> acquired_;
};

// Runs the handlers of signals that came; throws what they raise (KeyboardInterrupt).
inline void handle_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// `step(slice)` without the interpreter's lock, again while it says timed_out, until the deadline or a signal.
template <class Step>
auto wait_in_slices(const Deadline& deadline, Step step) {
  for (;;) {
    auto result = [&] {
      const Unlocked unlocked;
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
// Raises TypeError: behind an object that __new__ alone made is no C++ object. pybind11 calls it in place of allocating
// one that nobody has constructed.
[[noreturn]] void* not_constructed(std::size_t size_bytes = 0);
template <class T>
T& as(py::handle object) {  // after is<T>
  if (Py_TYPE(object.ptr()) != type_of<T>()) return py::cast<T&>(object);
  auto* const instance = reinterpret_cast<py::detail::instance*>(object.ptr());
  void* const value = instance->get_value_and_holder().value_ptr();
  return *static_cast<T*>(value != nullptr ? value : not_constructed());
}

// A str as UTF-8; raises InvalidArgument, which names it, for anything else.
std::string text_of(py::handle given, const char* name);

// What is given as `name`, as a T; raises InvalidArgument, which names it, when it is none.
template <class T>
T value_of(py::handle given, const char* name) {
  if constexpr (std::is_same_v<T, std::string>)
    if (py::isinstance<py::str>(given)) return text_of(given, name);
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

// An argument `timeout`: seconds, or None for ever.
struct Seconds {
  std::optional<double> value;
  operator std::optional<double>() const { return value; }
};
std::optional<double> seconds_of(py::handle given, const char* name);

// An argument that is a str.
template <Name kName>
struct Text {
  std::string value;
  operator const std::string&() const { return value; }
};

std::string bytes_for_people(std::uint64_t bytes);

}  // namespace fairway::python

template <>
struct pybind11::detail::type_caster<fairway::python::Seconds> {
  PYBIND11_TYPE_CASTER(fairway::python::Seconds, const_name("Optional[float]"));
  bool load(handle source, bool) {
    value.value = fairway::python::seconds_of(source, "timeout");
    return true;
  }
};

template <fairway::python::Name kName>
struct pybind11::detail::type_caster<fairway::python::Text<kName>> {
  using Argument = fairway::python::Text<kName>;
  PYBIND11_TYPE_CASTER(Argument, const_name("str"));
  bool load(handle source, bool) {
    value.value = fairway::python::text_of(source, kName.text);
    return true;
  }
};

template <class T, fairway::python::Name kName>
struct pybind11::detail::type_caster<fairway::python::Whole<T, kName>> {
  using Argument = fairway::python::Whole<T, kName>;
  PYBIND11_TYPE_CASTER(Argument, const_name("int"));
  bool load(handle source, bool) {
    value.value = static_cast<T>(fairway::python::whole_number(source, kName.text, std::numeric_limits<T>::max()));
    return true;
  }
};

#include <thread>

#include "memory.h"

namespace fairway::python {
namespace {

using Offset = Whole<std::uint64_t, "offset">;

// NumPy's "f4" of a kind and size.
std::string short_name(char kind, std::uint64_t bytes) {
  return kind == 'E' ? "" : (kind == 0 ? "u" : std::string(1, kind)) + std::to_string(bytes);
}

// "float32" and so on to the kind and size that a RemoteArray checks.
void read_dtype(const py::object& given, char& kind, std::uint64_t& item_bytes) {
  if (py::hasattr(given, "byteorder") && py::cast<std::string>(py::str(given.attr("byteorder"))) == ">")
    raise(ErrorCode::invalid_argument, "the dtype's byte order is not this machine's: name the bytes, by 'uint8'");
  std::string name = py::str(py::hasattr(given, "name") ? given.attr("name") : given);
  if (py::isinstance<py::type>(given) && py::hasattr(given, "__name__")) name = py::str(given.attr("__name__"));
  if (const auto dot = name.rfind('.'); dot != std::string::npos) name = name.substr(dot + 1);  // "torch.float16"
  struct Known {
    const char* name;
    char kind;
    std::uint64_t bytes;
  };
  static constexpr Known kKnown[] = {
      {"uint8", 0, 1},     {"bytes", 0, 1},     {"int8", 'i', 1},  {"bool", 'b', 1},      {"int16", 'i', 2},
      {"uint16", 'u', 2},  {"float16", 'f', 2}, {"half", 'f', 2},  {"bfloat16", 'E', 2},  {"int32", 'i', 4},
      {"uint32", 'u', 4},  {"float32", 'f', 4}, {"float", 'f', 8}, {"int64", 'i', 8},     {"uint64", 'u', 8},
      {"float64", 'f', 8}, {"double", 'f', 8},  {"int", 'i', 8},   {"complex64", 'c', 8}, {"complex128", 'c', 16}};
  for (const Known& known : kKnown)
    if (name == known.name || name == short_name(known.kind, known.bytes)) {
      kind = known.kind;
      item_bytes = known.bytes;
      return;
    }
  raise(ErrorCode::invalid_argument, "no dtype '" + name + "'; say float32, bfloat16, int8, uint8 (bytes) and so on");
}

PyRemoteArray array_of(const PyRemote& remote, const py::object& shape, const py::object& dtype, Offset offset,
                       const py::object& strides) {
  PyRemoteArray out{remote.imported, {}, 0};
  read_dtype(dtype, out.kind, out.shape.item_bytes);
  out.shape.offset = offset;
  const bool one = PyIndex_Check(shape.ptr()) != 0 && PySequence_Check(shape.ptr()) == 0;
  out.shape.counts = value_of<std::vector<std::int64_t>>(one ? py::object(py::make_tuple(shape)) : shape, "shape");
  for (const std::int64_t count : out.shape.counts)
    if (count < 0) raise(ErrorCode::invalid_argument, "a shape has a negative count");
  if (strides.is_none())
    out.shape.set_contiguous();
  else
    out.shape.strides = value_of<std::vector<std::int64_t>>(strides, "strides");
  if (out.shape.strides.size() != out.shape.counts.size())
    raise(ErrorCode::invalid_argument, "shape and strides have different lengths");
  if (!out.shape.makes_sense()) raise(ErrorCode::out_of_range, "the array reaches further than any region");
  const auto [first, last] = out.shape.reach();
  if (out.shape.total_bytes() != 0 &&
      (first < 0 || last > static_cast<std::int64_t>(remote.imported->region.size_bytes)))
    raise(ErrorCode::out_of_range, "the array reaches from byte " + std::to_string(first) + " to " +
                                       std::to_string(last) + " of a region of " +
                                       std::to_string(remote.imported->region.size_bytes));
  return out;
}

// One index or slice for each dimension, `...` once; as NumPy's basic indexing.
PyRemoteArray index_array(const PyRemoteArray& from, const py::object& given) {
  const py::tuple parts = py::isinstance<py::tuple>(given) ? py::tuple(given) : py::make_tuple(given);
  std::size_t named = 0;
  for (const py::handle part : parts)
    if (!part.is(py::ellipsis())) ++named;
  if (named > from.shape.counts.size())
    raise(ErrorCode::out_of_range, std::to_string(named) + " indices for an array of " +
                                       std::to_string(from.shape.counts.size()) + " dimensions");
  PyRemoteArray out{from.imported, {from.shape.offset, from.shape.item_bytes, {}, {}}, from.kind};
  std::size_t dim = 0;
  auto offset = static_cast<std::int64_t>(from.shape.offset);
  const auto keep = [&](std::size_t until) {
    for (; dim < until; ++dim) {
      out.shape.counts.push_back(from.shape.counts[dim]);
      out.shape.strides.push_back(from.shape.strides[dim]);
    }
  };
  for (const py::handle part : parts) {
    if (part.is(py::ellipsis())) {
      keep(dim + from.shape.counts.size() - named);
      named = from.shape.counts.size();  // a second one stands for nothing
      continue;
    }
    const std::int64_t count = from.shape.counts[dim];
    const std::int64_t stride = from.shape.strides[dim];
    if (py::isinstance<py::slice>(part)) {
      py::ssize_t start = 0, stop = 0, step = 0, length = 0;
      if (!py::reinterpret_borrow<py::slice>(part).compute(count, &start, &stop, &step, &length))
        throw py::error_already_set();
      offset += length == 0 ? 0 : start * stride;
      out.shape.counts.push_back(length);
      out.shape.strides.push_back(step * stride);
    } else {
      const std::int64_t index = PyNumber_AsSsize_t(part.ptr(), nullptr);  // cuts off what is too large anyway
      if (PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        raise(ErrorCode::invalid_argument,
              std::string("an index is a whole number, a slice or ..., not ") + py::cast<std::string>(py::repr(part)));
      }
      if (index < -count || index >= count)
        raise(ErrorCode::out_of_range, "index " + std::to_string(index) + " of " + std::to_string(count));
      offset += (index < 0 ? index + count : index) * stride;
    }
    ++dim;
  }
  keep(from.shape.counts.size());
  out.shape.offset = static_cast<std::uint64_t>(offset);
  return out;
}

std::uint64_t key_of(RemoteRegionId id) {
  return std::uint64_t{id.slot} << 32 | id.generation;
}

py::tuple counts_of(const Shape& shape) {
  py::tuple out(shape.counts.size());
  for (std::size_t i = 0; i < shape.counts.size(); ++i) out[i] = shape.counts[i];
  return out;
}

}  // namespace

Imported::Imported(std::shared_ptr<Session> from, std::shared_ptr<Tracker> by, const RemoteRegion& imported)
    : session(std::move(from)), tracker(std::move(by)), region(imported) {}

Imported::~Imported() {
  if (session->forked() || session->closed()) return;
  const py::error_scope kept;  // may run while an exception propagates
  session->imports().remove(region);
  session->imports().release_all(session->engine());
}

Imports::OnItsWay::OnItsWay(Imports& imports) : imports_(imports) {
  ++imports_.on_their_way_;
  while (imports_.releasing_) {
    const Unlocked unlocked;
    std::this_thread::yield();
  }
}

std::shared_ptr<Imported> Imports::find(RemoteRegionId id) {
  const auto found = live_.find(key_of(id));
  return found == live_.end() ? nullptr : found->second.lock();
}

void Imports::add(const std::shared_ptr<Imported>& imported) {
  live_[key_of(imported->region.id)] = imported;
  std::erase_if(unused_, [&](const RemoteRegion& region) { return region.id == imported->region.id; });
}

void Imports::remove(const RemoteRegion& region) {
  live_.erase(key_of(region.id));
  unused_.push_back(region);
}

void Imports::release_all(Engine& engine) {
  while (on_their_way_ == 0 && !releasing_ && !unused_.empty()) {
    const std::vector<RemoteRegion> all = std::exchange(unused_, {});
    releasing_ = true;
    {
      const Unlocked unlocked;  // a worker is asked, and waited for
      for (const RemoteRegion& region : all) (void)engine.release(region);
    }
    releasing_ = false;
  }
}

std::shared_ptr<Imported> import_until(const Deadline& deadline, const std::shared_ptr<Session>& session,
                                       const std::shared_ptr<Tracker>& tracker,
                                       const std::function<Result<RemoteRegion>(Timeout)>& import) {
  Imports& imports = session->imports();
  for (;;) {
    std::shared_ptr<Imported> out;
    const Status status = [&] {
      const Imports::OnItsWay on_its_way(imports);
      const auto made = [&] {
        const Unlocked unlocked;
        return import(deadline.slice());
      }();
      if (made && (out = imports.find(made->id)) == nullptr) {
        out = std::make_shared<Imported>(session, tracker, *made);
        imports.add(out);
      }
      return made.status();
    }();
    if (!session->closed()) imports.release_all(session->engine());
    if (status) return out;
    if (status.code() == ErrorCode::timed_out) handle_signals();
    if (status.code() != ErrorCode::timed_out || deadline.passed()) raise(status);
  }
}

Remote remote_of(py::handle object) {
  if (is<PyRemote>(object)) {
    auto& remote = as<PyRemote>(object);
    return {remote.imported, Shape::bytes(0, remote.imported->region.size_bytes), 0};
  }
  if (is<PyRemoteArray>(object)) {
    auto& array = as<PyRemoteArray>(object);
    return {array.imported, array.shape, array.kind};
  }
  raise(ErrorCode::invalid_argument,
        std::string("the remote side is a RemoteRegion, part of one or its array(), not ") +
            Py_TYPE(object.ptr())->tp_name);
}

void bind_remote(py::module_& module) {
  py::class_<PyRemote>(
      module, "RemoteRegion",
      "A peer's region, from Engine.lookup or import_region; released with its last reference.\n\n"
      "remote[a:b] is a part of it, in bytes; remote.array(shape, dtype) sees it as an array whose views\n"
      "(basic slicing, as NumPy's) are what a transfer reads or writes.")
      .def_property_readonly("nbytes", [](const PyRemote& r) { return r.imported->region.size_bytes; })
      .def_property_readonly("kind", [](const PyRemote& r) { return kind_text(r.imported->region.kind); })
      .def_property_readonly("access", [](const PyRemote& r) { return access_text(r.imported->region.access); })
      .def_property_readonly("peer",
                             [](const PyRemote& r) {
                               return PyPeer{r.imported->session, r.imported->tracker, r.imported->region.peer, ""};
                             })
      .def("__len__", [](const PyRemote& r) { return r.imported->region.size_bytes; })
      .def("__getitem__",
           [](const PyRemote& r, py::handle part) {
             const auto [offset, length] = bytes_of(part, r.imported->region.size_bytes);
             return PyRemoteArray{r.imported, Shape::bytes(offset, length), 0};
           })
      .def("array", &array_of, py::arg("shape"), py::arg("dtype") = "uint8", py::arg("offset") = 0,
           py::arg("strides") = py::none(),
           "array(shape, dtype='uint8', offset=0, strides=None) -> RemoteArray\n\n"
           "The region, from byte `offset`, as an array of `shape` (counts) and `dtype` (as 'float32', 'f4',\n"
           "numpy.float32 or torch.bfloat16); strides in bytes, C order without.")
      .def("__repr__", [](const PyRemote& r) {
        return "<fairway.RemoteRegion " + bytes_for_people(r.imported->region.size_bytes) + " of " +
               kind_text(r.imported->region.kind) + " memory, '" + access_text(r.imported->region.access) + "'>";
      });

  py::class_<PyRemoteArray>(module, "RemoteArray",
                            "Part of a peer's region as elements of a shape; slicing it moves nothing.")
      .def_property_readonly("shape", [](const PyRemoteArray& a) { return counts_of(a.shape); })
      .def_property_readonly(
          "strides", [](const PyRemoteArray& a) { return py::tuple(py::cast(a.shape.strides)); }, "in bytes")
      .def_property_readonly(
          "offset", [](const PyRemoteArray& a) { return a.shape.offset; }, "in the region, in bytes")
      .def_property_readonly("itemsize", [](const PyRemoteArray& a) { return a.shape.item_bytes; })
      .def_property_readonly("nbytes", [](const PyRemoteArray& a) { return a.shape.total_bytes(); })
      .def("__len__", [](const PyRemoteArray& a) { return a.shape.counts.empty() ? 0 : a.shape.counts[0]; })
      .def("__getitem__", &index_array)
      .def("__repr__", [](const PyRemoteArray& a) {
        return "<fairway.RemoteArray " + py::cast<std::string>(py::str(counts_of(a.shape))) + " of " +
               std::to_string(a.shape.item_bytes) + "-byte elements at byte " + std::to_string(a.shape.offset) + ">";
      });
}

}  // namespace fairway::python

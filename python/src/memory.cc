#include "memory.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dlpack.h"
#include "sys/process_memory.h"

namespace fairway::python {
namespace {

// Memory from Python's allocate(): like the engine's, but it outlives the engine while a view of it exists.
struct Pages {
  void* address = nullptr;
  std::size_t size_bytes = 0;
  int fd = -1;
  ~Pages() {
    if (address != nullptr) ::munmap(address, size_bytes);
    if (fd >= 0) ::close(fd);
  }
};

class PagesHold final : public Hold {
 public:
  explicit PagesHold(std::shared_ptr<void> pages) : pages_(std::move(pages)) {}

 private:
  std::shared_ptr<void> pages_;
};

std::shared_ptr<Pages> make_pages(std::uint64_t size_bytes) {
  auto pages = std::make_shared<Pages>();
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (size_bytes == 0) raise(ErrorCode::invalid_argument, "a region of 0 bytes");
  if (size_bytes > std::uint64_t{1} << 46)
    raise(ErrorCode::resource_exhausted, "no machine has " + bytes_for_people(size_bytes));
  const sys::AvailableMemory available = sys::available_memory();
  if (size_bytes > available.bytes)  // to reserve that would be no error: the kernel kills a process
    raise(ErrorCode::resource_exhausted, "cannot reserve " + bytes_for_people(size_bytes) + ": " +
                                             available.limited_by + " leaves " + bytes_for_people(available.bytes));
  pages->size_bytes = (size_bytes + page - 1) / page * page;
  pages->fd = ::memfd_create("fairway", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const auto length = static_cast<off_t>(pages->size_bytes);
  // Reserved now: later there would be no error but a signal.
  if (pages->fd < 0 || ::ftruncate(pages->fd, length) != 0 || ::fallocate(pages->fd, 0, 0, length) != 0 ||
      ::fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    raise(ErrorCode::resource_exhausted,
          "cannot reserve " + bytes_for_people(size_bytes) + ": " + std::strerror(errno));
  void* const address = ::mmap(nullptr, pages->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pages->fd, 0);
  if (address == MAP_FAILED)
    raise(ErrorCode::resource_exhausted, "cannot map " + bytes_for_people(size_bytes) + ": " + std::strerror(errno));
  pages->address = address;
  return pages;
}

std::string hex(std::uintptr_t address) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%lx", static_cast<unsigned long>(address));
  return text;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  try {
    auto& region = py::cast<PyRegion&>(py::handle(self));
    if (!region.registration->live()) {
      PyErr_SetString(PyExc_BufferError, "the region was deregistered");
      return -1;
    }
    const Region& memory = region.registration->region();
    if (!reached_by_cpu(memory.kind)) {
      PyErr_SetString(PyExc_BufferError, "the region is a GPU's memory: use DLPack or __cuda_array_interface__");
      return -1;
    }
    if (PyBuffer_FillInfo(view, self, memory.address, static_cast<Py_ssize_t>(memory.size_bytes), 0, flags) != 0)
      return -1;
    ++region.views;
    return 0;
  } catch (const py::error_already_set& error) {
    py::error_already_set(error).restore();
    return -1;
  }
}

void release_buffer(PyObject* self, Py_buffer*) {
  --py::cast<PyRegion&>(py::handle(self)).views;
}

void give_buffers(PyHeapTypeObject* type) {
  type->ht_type.tp_as_buffer = &type->as_buffer;
  type->as_buffer.bf_getbuffer = get_buffer;
  type->as_buffer.bf_releasebuffer = release_buffer;
}

void deregister(PyRegion& region, Seconds timeout) {
  if (region.memory != nullptr && region.views > 0)
    raise(ErrorCode::invalid_argument, "arrays that see the region's memory are still alive, " +
                                           std::to_string(region.views) + " of them: delete them first");
  check(region.registration->end(timeout_of(timeout)));
  region.memory.reset();
}

}  // namespace

Access access_of(py::handle given) {
  if (given.is_none()) return Access::none;
  const std::string text = text_of(given, "access");
  Access access = Access::none;
  for (const char letter : text) switch (letter) {
      case 'r': access = access | Access::read; break;
      case 'w': access = access | Access::write; break;
      case 'a': access = access | Access::atomic; break;
      default:
        raise(ErrorCode::invalid_argument,
              "access is made of the letters r (peers read), w (write) and a (atomics), not '" + text + "'");
    }
  return access;
}

std::string access_text(Access access) {
  std::string out;
  if (includes(access, Access::read)) out += 'r';
  if (includes(access, Access::write)) out += 'w';
  if (includes(access, Access::atomic)) out += 'a';
  return out;
}

py::object register_object(PyEngine& engine, py::handle object, Access access) {
  View view = view_of(object);
  const Runs runs = runs_of(view.shape);
  if (!runs.outer.empty())
    raise(ErrorCode::invalid_argument,
          "the array is not contiguous: register the array that it is a view of, views of that move by themselves");
  if (view.read_only && access != Access::none && access != Access::read)
    raise(ErrorCode::access_denied, "the array is read-only, so peers can be granted 'r' alone");
  const int device = view.gpu;
  const MemorySource source{view.on_gpu ? MemoryKind::device : MemoryKind::host, -1, 0};
  auto made = engine.session->add(reinterpret_cast<void*>(view.address), view.shape.total_bytes(), access, source,
                                  std::move(view.hold));
  return py::cast(PyRegion{std::move(made), device, 0, nullptr});
}

py::object allocate(PyEngine& engine, std::uint64_t size_bytes, Access access) {
  auto pages = make_pages(size_bytes);
  auto made = engine.session->add(pages->address, size_bytes, access, {MemoryKind::host, pages->fd, 0},
                                  std::make_shared<PagesHold>(pages));
  return py::cast(PyRegion{std::move(made), 0, 0, std::move(pages)});
}

Local local_of(Session& session, py::handle object, bool written) {
  const auto same_engine = [&](const Registration& registration) {
    if (registration.session().get() != &session)
      raise(ErrorCode::invalid_argument, "the local region was registered with another engine");
    registration.check_live();
  };
  if (is<PyRegion>(object)) {
    auto& region = as<PyRegion>(object);
    same_engine(*region.registration);
    return {region.registration, Shape::bytes(0, region.registration->region().size_bytes), 0, nullptr};
  }
  if (is<PySlice>(object)) {
    auto& slice = as<PySlice>(object);
    same_engine(*slice.registration);
    return {slice.registration, Shape::bytes(slice.offset, slice.length), 0, nullptr};
  }
  View view = view_of(object);
  if (written && view.read_only) raise(ErrorCode::access_denied, "the local array is read-only");
  auto registration = session.of_view(object, view);
  view.shape.offset = view.address - reinterpret_cast<std::uintptr_t>(registration->region().address);
  return {std::move(registration), std::move(view.shape), view.kind, std::move(view.hold), view.on_gpu, view.gpu};
}

const char* kind_text(MemoryKind kind) {
  static constexpr const char* kNames[] = {"host", "pinned", "device", "managed"};
  return kNames[static_cast<int>(kind)];
}

std::pair<std::uint64_t, std::uint64_t> bytes_of(py::handle given, std::uint64_t size) {
  if (!py::isinstance<py::slice>(given))
    raise(ErrorCode::invalid_argument,
          "a region's parts are slices of bytes, as in region[0:8], not " + py::cast<std::string>(py::repr(given)));
  py::ssize_t start = 0, stop = 0, step = 0, count = 0;
  if (!py::reinterpret_borrow<py::slice>(given).compute(static_cast<py::ssize_t>(size), &start, &stop, &step, &count))
    throw py::error_already_set();
  if (step != 1) raise(ErrorCode::invalid_argument, "a slice of bytes has no step; use array() for strides");
  return {static_cast<std::uint64_t>(start), static_cast<std::uint64_t>(count)};
}

void bind_memory(py::module_& module) {
  py::class_<PyRegion>(
      module, "Region", py::custom_type_setup(give_buffers),
      "Memory of this process that peers may reach as `access` says, from Engine.register or allocate.\n\n"
      "It keeps what was registered alive. region[a:b] is a part of it, in bytes; memoryview(region),\n"
      "numpy.asarray(region) and torch.from_dlpack(region) see its memory. `with` ends it.")
      .def_property_readonly(
          "address",
          [](const PyRegion& r) { return reinterpret_cast<std::uintptr_t>(r.registration->region().address); })
      .def_property_readonly("nbytes", [](const PyRegion& r) { return r.registration->region().size_bytes; })
      .def_property_readonly(
          "kind", [](const PyRegion& r) { return kind_text(r.registration->region().kind); },
          "'host', 'pinned', 'device' or 'managed'")
      .def_property_readonly(
          "access", [](const PyRegion& r) { return access_text(r.registration->region().access); },
          "what peers may do: letters of 'rwa'")
      .def_property_readonly("registered", [](const PyRegion& r) { return r.registration->live(); })
      .def("__len__", [](const PyRegion& r) { return r.registration->region().size_bytes; })
      .def("__getitem__",
           [](const PyRegion& r, py::handle part) {
             const auto [offset, length] = bytes_of(part, r.registration->region().size_bytes);
             return PySlice{r.registration, offset, length};
           })
      .def("deregister", &deregister, py::arg("timeout") = 5.0,
           "deregister(timeout=5.0)\n\n"
           "Ends it: peers are refused from now on, and when this returns nothing touches the memory any more.\n\n"
           "Raises NotFenced, naming who, when `timeout` seconds were not enough: do not reuse the memory then.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyRegion& r, const py::args&) { deregister(r, Seconds{5.0}); })
      .def("__dlpack_device__",
           [](const PyRegion& r) {
             const bool on_gpu = r.registration->region().kind == MemoryKind::device;
             return py::make_tuple(on_gpu ? dlpack::kCuda : dlpack::kCpu, on_gpu ? r.device : 0);
           })
      .def("__dlpack__",
           [](py::object self, const py::kwargs&) {
             auto& r = py::cast<PyRegion&>(self);
             r.registration->check_live();
             const Region& memory = r.registration->region();
             const bool on_gpu = memory.kind == MemoryKind::device;
             ++r.views;
             std::shared_ptr<void> keep(nullptr, [self = std::move(self)](void*) mutable {
               --py::cast<PyRegion&>(self).views;
               self = py::object();
             });
             return to_dlpack(reinterpret_cast<std::uintptr_t>(memory.address), memory.size_bytes,
                              on_gpu ? dlpack::kCuda : dlpack::kCpu, on_gpu ? r.device : 0, std::move(keep));
           })
      .def_property_readonly("__cuda_array_interface__",
                             [](const PyRegion& r) {
                               const Region& memory = r.registration->region();
                               if (memory.kind != MemoryKind::device) throw py::attribute_error("not a GPU's memory");
                               py::dict out;
                               out["shape"] = py::make_tuple(memory.size_bytes);
                               out["typestr"] = "|u1";
                               out["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(memory.address), false);
                               out["version"] = 3;
                               return out;
                             })
      .def("__repr__", [](const PyRegion& r) {
        const Region& memory = r.registration->region();
        const std::string access = access_text(memory.access);
        return "<fairway.Region " + bytes_for_people(memory.size_bytes) + " of " + kind_text(memory.kind) +
               " memory at " + hex(reinterpret_cast<std::uintptr_t>(memory.address)) +
               ", peers: " + (access.empty() ? "no access" : "'" + access + "'") +
               (r.registration->live() ? ">" : ", deregistered>");
      });

  py::class_<PySlice>(module, "RegionSlice", "Bytes of a Region, from region[a:b].")
      .def_readonly("offset", &PySlice::offset)
      .def_readonly("nbytes", &PySlice::length)
      .def("__len__", [](const PySlice& s) { return s.length; })
      .def("__repr__", [](const PySlice& s) {
        return "<fairway.RegionSlice " + bytes_for_people(s.length) + " at byte " + std::to_string(s.offset) + ">";
      });
}

}  // namespace fairway::python

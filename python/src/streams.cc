#include <atomic>

#include "module.h"
#include "transfers.h"

// What kernels and CUDA streams use by themselves: mappings of peers' GPU memory, puts, waits.
namespace fairway::python {
namespace {

// Lasts until unmap() or the engine's close(): kernels may use it when Python holds it no more.
struct PyMapping {
  std::shared_ptr<Session> session;
  Mapping mapping;
  std::shared_ptr<void> region;  // what it shows is neither released nor deregistered by its last user meanwhile
  bool live = true;

  [[nodiscard]] const Mapping& checked() const {
    if (!live || session->closed()) raise(ErrorCode::revoked, "the mapping was unmapped, or its engine closed");
    return mapping;
  }
};

// A GPU's number, or this process's CPUs.
int gpu_of(py::handle given) {
  if (const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(given.ptr()))) {
    const long long value = PyLong_AsLongLong(index.ptr());
    if (PyErr_Occurred() == nullptr && value >= kCpu && value <= std::numeric_limits<int>::max())
      return static_cast<int>(value);
  }
  PyErr_Clear();
  raise(ErrorCode::invalid_argument,
        "gpu is a GPU's number, or -1 for the CPUs of this process, not " + py::cast<std::string>(py::repr(given)));
}

PyMapping map(PyEngine& self, py::handle region, py::handle given_gpu, Seconds timeout) {
  const int gpu = gpu_of(given_gpu);
  Engine& engine = self.session->engine();
  const Timeout whole = timeout_of(timeout);
  std::shared_ptr<void> keep;
  const auto made = [&]() -> Result<Mapping> {
    if (is<PyRemote>(region)) {
      const auto imported = as<PyRemote>(region).imported;
      if (imported->session != self.session) raise(ErrorCode::invalid_argument, "a region of another engine's peer");
      keep = imported;
      const Unlocked unlocked;
      return engine.map(imported->region, gpu, whole);
    }
    if (!is<PyRegion>(region)) raise(ErrorCode::invalid_argument, "map takes a RemoteRegion or a Region, whole");
    const auto registration = as<PyRegion>(region).registration;
    if (registration->session() != self.session) raise(ErrorCode::invalid_argument, "a region of another engine");
    registration->check_live();
    keep = registration;
    const Unlocked unlocked;
    return engine.map(registration->region(), gpu, whole);
  }();
  return {self.session, take(made), std::move(keep)};
}

void unmap(PyMapping& self) {
  if (!self.live || self.session->closed()) return;
  Engine& engine = self.session->engine();
  const Status status = [&] {
    const Unlocked unlocked;
    return engine.unmap(self.mapping.id);
  }();
  check(status);
  self.live = false;
  self.region.reset();
}

void* stream_of(py::handle stream) {
  const auto handle = py::module_::import("fairway.cuda").attr("_handle")(stream);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uintptr_t>::max();
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(whole_number(handle, "stream", kMost)));
}

// Where a word of so many bytes lies that the stream's GPU reads or writes: an array of one element, or a Region's
// start.
template <class Word>
Word* word_of(py::handle given, const char* what) {
  if (given.is_none()) return nullptr;
  std::uintptr_t address = 0;
  std::uint64_t bytes = 0;
  if (is<PyRegion>(given)) {
    as<PyRegion>(given).registration->check_live();
    const Region& region = as<PyRegion>(given).registration->region();
    address = reinterpret_cast<std::uintptr_t>(region.address), bytes = region.size_bytes;
  } else {
    const View view = view_of(given);
    address = view.address, bytes = view.shape.total_bytes();
  }
  if (bytes < sizeof(Word) || address % sizeof(Word) != 0)
    raise(ErrorCode::invalid_argument,
          std::string(what) + " is an aligned word of " + std::to_string(sizeof(Word)) + " bytes");
  return reinterpret_cast<Word*>(address);
}

using PutOffset = Whole<std::uint64_t, "an offset">;
using SignalValue = Whole<std::uint64_t, "a signal's value">;

void stream_put(PyEngine& self, const PyMapping& to, py::handle local, py::handle stream, PutOffset offset,
                const std::string& by, std::optional<PutOffset> signal_offset, SignalValue signal_value,
                bool signal_add, Whole<std::uint32_t, "blocks"> blocks, bool signal_by_stream) {
  StreamPut put;
  put.offset = offset;
  put.by = choice<PutBy>(
      by, "by", {{"automatic", PutBy::automatic}, {"kernel", PutBy::kernel}, {"copy_engine", PutBy::copy_engine}});
  if (!local.is_none()) {
    const Local from = local_of(*self.session, local, false);
    const Runs runs = runs_of(from.shape);
    if (!runs.outer.empty())
      raise(ErrorCode::invalid_argument, "a stream puts contiguous arrays; this is a strided view");
    put.from = from.registration->region().address + runs.offset;
    put.length = runs.run;
  }
  put.signal_offset = signal_offset.value_or(PutOffset{StreamPut::kNone});
  put.signal_value = signal_value;
  put.signal_add = signal_add;
  put.blocks = blocks;
  put.signal_by_stream = signal_by_stream;
  check(self.session->engine().stream_put(to.checked().id, put, stream_of(stream)));
}

void stream_wait_signal(PyEngine& self, py::handle word, py::handle stream, py::handle outcome, SignalValue value,
                        py::handle count, double timeout, const PyMapping* mapping) {
  StreamWait wait;
  wait.word = word_of<std::uint64_t>(word, "word");
  wait.outcome = word_of<std::uint32_t>(outcome, "outcome");
  wait.count = word_of<std::uint64_t>(count, "count");
  wait.value = value;
  wait.timeout = timeout_of(timeout);
  if (mapping != nullptr) wait.with = mapping->checked().id;
  check(self.session->engine().stream_wait_signal(wait, stream_of(stream)));
}

constexpr const char* kMapText = R"(map(region, gpu, timeout=5.0) -> Mapping

A peer's GPU memory, or this process's of another GPU, for kernels of GPU `gpu`. gpu=-1: a peer's host memory, for the
CPUs of this process.

region   a RemoteRegion or a Region, whole. Raises Unsupported, with the reason, where there is no direct way
timeout  seconds. May wait for running kernels, so do not call it where those wait for it

Kernels read and write there without asking anybody. When its owner wants it back, `mapping.ended` says so and a PeerEvent
'mapping_ended' comes: start no more kernels, let those that run end, then mapping.unmap(). See docs/cuda.md.)";
constexpr const char* kPutText =
    R"(stream_put(mapping, local, stream, offset=0, by='automatic', signal_offset=None, signal_value=1, signal_add=True, blocks=0, signal_by_stream=False)

Work for a CUDA stream, also while it is captured: copies `local` into the mapping.

local    a contiguous array of the stream's GPU, or None for the signal alone; keep it until the stream has done this
stream   torch's, CuPy's or a cudaStream_t; not the default one
offset   in the mapping, in bytes
by       'automatic', 'kernel' (less time for small ones) or 'copy_engine'
signal_offset, signal_value, signal_add
         an 8-byte word of the mapping that grows by the value, or is set to it, after all bytes
blocks   of the kernel that copies more than 32 KiB; 0: up to 128. Fewer let other streams' signals pass sooner
signal_by_stream
         with 'copy_engine' and signal_add=False: the stream itself sets the word, in place of a kernel behind the copy

Who waits for the signal, by stream_wait_signal or in a kernel, sees all bytes.)";
constexpr const char* kWaitText =
    R"(stream_wait_signal(word, stream, outcome, value=1, count=None, timeout=1.0, mapping=None)

Work for a CUDA stream: waits until `word` has reached `value`, and for all bytes before.

word     8 bytes of the stream's GPU
outcome  4 bytes of it that then hold 0, or an error's number: the timeout passed, or `mapping` ended
count    8 bytes of it: waits for `word` to reach count + value, then adds value to count, so that each launch of a graph
         waits for the next signal
timeout  seconds on the GPU; past it the stream goes on
mapping  gives up when this one ends)";

}  // namespace

void bind_streams(py::module_& module) {
  py::class_<PyMapping>(
      module, "Mapping",
      "Memory as kernels of one GPU reach it, from Engine.map. Lasts until unmap(), the end of `with` or\n"
      "Engine.close; dropping the object does not end it, because kernels may use it.\n\n"
      "Shows __cuda_array_interface__ as bytes: keep to `access`.")
      .def_property_readonly(
          "address", [](const PyMapping& m) { return reinterpret_cast<std::uintptr_t>(m.checked().address); },
          "in the GPU's address space")
      .def_property_readonly("nbytes", [](const PyMapping& m) { return m.mapping.size_bytes; })
      .def_property_readonly("gpu", [](const PyMapping& m) { return m.mapping.gpu; })
      .def_property_readonly("access", [](const PyMapping& m) { return access_text(m.mapping.access); })
      .def_property_readonly(
          "atomics", [](const PyMapping& m) { return m.mapping.atomics; },
          "whether the GPU's atomics on it are atomic; else only one side may write each signal")
      .def_property_readonly(
          "path_description", [](const PyMapping& m) { return m.mapping.path_description; }, "how the GPU accesses it")
      .def_property_readonly(
          "ended",
          [](const PyMapping& m) -> py::object {
            const auto code = static_cast<ErrorCode>(
                std::atomic_ref(*const_cast<std::uint32_t*>(m.checked().ended)).load(std::memory_order_acquire));
            if (code == ErrorCode::ok) return py::none();
            return exception_of({code, "nothing more may be started that uses the mapping"});
          },
          "None, or an exception that says why nothing more may be started that uses it")
      .def("unmap", &unmap,
           "unmap()\n\nGives it back. No kernel or stream uses it any more, and no graph with it is launched.")
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PyMapping& m, const py::args&) { unmap(m); })
      .def_property_readonly("__cuda_array_interface__",
                             [](const PyMapping& m) {
                               const Mapping& mapping = m.checked();
                               py::dict out;
                               out["shape"] = py::make_tuple(mapping.size_bytes);
                               out["typestr"] = "|u1";
                               out["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(mapping.address),
                                                            !includes(mapping.access, Access::write));
                               out["version"] = 3;
                               return out;
                             })
      .def("__repr__", [](const PyMapping& m) {
        return "<fairway.Mapping of " + bytes_for_people(m.mapping.size_bytes) + " for GPU " +
               std::to_string(m.mapping.gpu) + " by " + m.mapping.path_description + (m.live ? ">" : ", unmapped>");
      });
  auto engine = static_cast<py::class_<PyEngine>>(module.attr("Engine"));
  engine.def("map", &map, py::arg("region"), py::arg("gpu"), py::arg("timeout") = 5.0, kMapText)
      .def("stream_put", &stream_put, py::arg("mapping"), py::arg("local"), py::arg("stream"), py::arg("offset") = 0,
           py::arg("by") = "automatic", py::arg("signal_offset") = py::none(), py::arg("signal_value") = 1,
           py::arg("signal_add") = true, py::arg("blocks") = 0, py::arg("signal_by_stream") = false, kPutText)
      .def("stream_wait_signal", &stream_wait_signal, py::arg("word"), py::arg("stream"), py::arg("outcome"),
           py::arg("value") = 1, py::arg("count") = py::none(), py::arg("timeout") = 1.0, py::arg("mapping") = nullptr,
           kWaitText);
  auto transfer = static_cast<py::class_<Transfer>>(module.attr("Transfer"));
  transfer.def(
      "stream_wait",
      [](const Transfer& t, py::handle stream) {
        void* const handle = stream_of(stream);
        if (t.work->left == 0) return;
        for (std::size_t i = t.work->polled ? 0 : t.work->next; i < t.work->ids.size(); ++i) {
          const Status status = t.work->tracker->session().engine().stream_wait(t.work->ids[i], handle);
          if (status.code() != ErrorCode::not_found) check(status);  // that: it has completed, and was collected
        }
      },
      py::arg("stream"),
      "stream_wait(stream)\n\n"
      "What is put into the CUDA stream from now on starts once this has completed, well or not; the host waits for "
      "nothing.\n\n"
      "Somebody must still make progress (progress='caller') and collect the completion.");
}

}  // namespace fairway::python

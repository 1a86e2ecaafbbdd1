#include "views.h"

#include <charconv>
#include <cstring>

#include "dlpack.h"

namespace fairway::python {
namespace {

class BufferHold final : public Hold {
 public:
  ~BufferHold() override { PyBuffer_Release(&buffer); }
  Py_buffer buffer{};
};

class ObjectHold final : public Hold {
 public:
  explicit ObjectHold(py::object kept) : kept_(std::move(kept)) {}

 private:
  py::object kept_;
};

class TensorHold final : public Hold {
 public:
  explicit TensorHold(dlpack::ManagedTensor* tensor) : tensor_(tensor) {}
  ~TensorHold() override {
    if (tensor_->deleter != nullptr) tensor_->deleter(tensor_);
  }

 private:
  dlpack::ManagedTensor* tensor_;
};

// Elements of the other byte order are of a kind of their own.
char other_order(char kind) {
  return kind == 0 ? kind : static_cast<char>(kind - 'a' + 'A');
}

// The kind of a struct-module format: one letter behind an optional byte order.
char kind_of_format(const char* format, bool& plain) {
  plain = true;
  if (format == nullptr) return 0;
  if ((*format == '>' || *format == '!') && std::strlen(format) > 1) {
    const char kind = kind_of_format(format + 1, plain);
    const bool order_matters = std::strchr("bB?c", format[1]) == nullptr;
    return order_matters ? other_order(kind) : kind;
  }
  while (*format != 0 && std::strchr("@=<>!", *format) != nullptr) ++format;
  if (std::strlen(format) == 1) {
    if (std::strchr("bhilqn", *format)) return 'i';
    if (std::strchr("BHILQN", *format)) return *format == 'B' ? 0 : 'u';
    if (std::strchr("efd", *format)) return 'f';
    if (*format == '?') return 'b';
    if (*format == 'c') return 0;
  }
  plain = std::strpbrk(format, "OP&") == nullptr;  // pointers and Python's objects mean nothing elsewhere
  return std::strlen(format) == 2 && format[0] == 'Z' ? 'c' : 0;
}

void refuse_objects(bool plain) {
  if (!plain)
    raise(ErrorCode::invalid_argument, "the array holds Python objects or pointers, which mean nothing to a peer");
}

// The object refused to export its memory: raises this module's error with the object's own message.
[[noreturn]] void refused(py::handle object, const py::error_already_set& error) {
  if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError)) throw error;  // such as Ctrl-C
  const Status status(ErrorCode::invalid_argument,
                      std::string(Py_TYPE(object.ptr())->tp_name) +
                          " does not lend its memory: " + py::cast<std::string>(py::str(error.value())));
  const py::object ours = exception_of(status);
  ours.attr("__cause__") = error.value();
  PyErr_SetObject(py::type::handle_of(ours).ptr(), ours.ptr());
  throw py::error_already_set();
}

View from_buffer(py::handle object) {
  auto hold = std::make_shared<BufferHold>();
  if (PyObject_GetBuffer(object.ptr(), &hold->buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0)
    refused(object, py::error_already_set());
  const Py_buffer& buffer = hold->buffer;
  View out;
  bool plain = true;
  out.kind = kind_of_format(buffer.format, plain);
  refuse_objects(plain);
  out.address = reinterpret_cast<std::uintptr_t>(buffer.buf);
  out.shape.item_bytes = static_cast<std::uint64_t>(buffer.itemsize);
  if (buffer.shape != nullptr)
    out.shape.counts.assign(buffer.shape, buffer.shape + buffer.ndim);
  else if (buffer.ndim != 0)
    out.shape.counts = {buffer.len / buffer.itemsize};
  if (buffer.strides != nullptr)  // ctypes leaves them out, though asked
    out.shape.strides.assign(buffer.strides, buffer.strides + buffer.ndim);
  else
    out.shape.set_contiguous();
  out.read_only = buffer.readonly != 0;
  out.hold = std::move(hold);
  return out;
}

// None: the object does not lend itself so now, and has the older interface.
py::object capsule_of(py::handle object) try {
  // torch computes a negation lazily; its DLPack capsule has the bytes before it.
  if (py::hasattr(object, "is_neg") && py::cast<bool>(object.attr("is_neg")()))
    raise(ErrorCode::invalid_argument, "the tensor is a negation that torch has not computed yet: resolve_neg() does");
  const auto device = value_of<std::pair<int, int>>(object.attr("__dlpack_device__")(), "__dlpack_device__");
  if (device.first == dlpack::kCuda)
    return object.attr("__dlpack__")(py::arg("stream") = -1);  // order is by stream= of the transfer
  if (device.first == dlpack::kCpu || device.first == dlpack::kCudaHost || device.first == dlpack::kCudaManaged)
    return object.attr("__dlpack__")();
  raise(ErrorCode::unsupported, "the tensor is on a device of DLPack's kind " + std::to_string(device.first) +
                                    "; Fairway knows CPUs (1) and NVIDIA GPUs (2, 3, 13)");
} catch (const py::error_already_set& error) {
  if (error.matches(py::module_::import("fairway.errors").attr("Error"))) throw;
  // torch 2.11 lends a GPU's tensor by DLPack only while that GPU is the current one.
  if (error.matches(PyExc_BufferError) && py::hasattr(object, "__cuda_array_interface__")) return py::none();
  refused(object, error);
}

View from_cuda_interface(py::handle object) {
  const py::object said = object.attr("__cuda_array_interface__");
  const auto entry = [&](const char* name) {
    if (!py::isinstance<py::dict>(said) || !said.contains(name))
      raise(ErrorCode::invalid_argument, std::string("__cuda_array_interface__ has no '") + name + "'");
    return py::object(said[name]);
  };
  const auto data = value_of<std::pair<std::uintptr_t, bool>>(entry("data"), "data");
  const auto type = value_of<std::string>(entry("typestr"), "typestr");  // "<f4"
  View out;
  const char* const end = type.data() + type.size();
  const auto read = type.size() < 3 ? std::from_chars_result{type.data(), std::errc::invalid_argument}
                                    : std::from_chars(type.data() + 2, end, out.shape.item_bytes);
  if (read.ec != std::errc() || read.ptr != end)
    raise(ErrorCode::invalid_argument, "__cuda_array_interface__ has the typestr '" + type + "'");
  refuse_objects(type[1] != 'O');
  out.kind = type[1] == 'V' || type.substr(1) == "u1" ? '\0' : type[1];
  if (type[0] == '>' && std::strchr("iufc", type[1]) != nullptr) out.kind = other_order(out.kind);
  out.address = data.first;
  out.read_only = data.second;
  out.shape.counts = value_of<std::vector<std::int64_t>>(entry("shape"), "shape");
  if (said.contains("strides") && !entry("strides").is_none())
    out.shape.strides = value_of<std::vector<std::int64_t>>(entry("strides"), "strides");
  else
    out.shape.set_contiguous();
  out.on_gpu = true;
  out.hold = std::make_shared<ObjectHold>(py::reinterpret_borrow<py::object>(object));
  return out;
}

View from_dlpack(py::handle object) {
  const py::object capsule = capsule_of(object);
  if (capsule.is_none()) return from_cuda_interface(object);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0)
    raise(ErrorCode::invalid_argument, "__dlpack__ gave no tensor that is still to be taken");
  auto* tensor = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  auto hold = std::make_shared<TensorHold>(tensor);
  const dlpack::Tensor& in = tensor->tensor;
  View out;
  static constexpr char kKinds[] = {'i', 'u', 'f', 0, 'E', 'c', 'b'};
  out.kind = in.type.code < sizeof kKinds ? kKinds[in.type.code] : '\0';
  if (out.kind == 'u' && in.type.bits == 8) out.kind = 0;
  if (in.type.bits * in.type.lanes % 8 != 0) raise(ErrorCode::unsupported, "the tensor's elements are not whole bytes");
  out.shape.item_bytes = static_cast<std::uint64_t>(in.type.bits) * in.type.lanes / 8;
  out.address = reinterpret_cast<std::uintptr_t>(in.data) + in.byte_offset;
  out.shape.counts.assign(in.shape, in.shape + in.dimensions);
  if (in.strides == nullptr)
    out.shape.set_contiguous();
  else
    for (std::int32_t i = 0; i < in.dimensions; ++i)
      out.shape.strides.push_back(in.strides[i] * static_cast<std::int64_t>(out.shape.item_bytes));
  out.on_gpu = in.device.kind == dlpack::kCuda;
  out.gpu = in.device.id;
  out.hold = std::move(hold);
  return out;
}

py::object numpy_array_type() {
  const py::dict modules = py::module_::import("sys").attr("modules");
  return modules.contains("numpy") ? py::object(modules["numpy"].attr("ndarray")) : py::none();
}

}  // namespace

std::pair<std::uintptr_t, std::uint64_t> View::range() const {
  const auto [first, last] = shape.reach();
  return {address + static_cast<std::uintptr_t>(first), static_cast<std::uint64_t>(last - first)};
}

View view_of(py::handle object, bool or_nothing) {
  View out;
  if (PyObject_CheckBuffer(object.ptr()))
    out = from_buffer(object);
  else if (py::hasattr(object, "__dlpack_device__"))
    out = from_dlpack(object);
  else if (py::hasattr(object, "__cuda_array_interface__"))
    out = from_cuda_interface(object);
  else
    raise(ErrorCode::invalid_argument,
          std::string(Py_TYPE(object.ptr())->tp_name) +
              " shows no memory: it has neither the buffer protocol nor __dlpack__ nor __cuda_array_interface__");
  if (!out.shape.makes_sense())
    raise(ErrorCode::invalid_argument,
          std::string(Py_TYPE(object.ptr())->tp_name) + " shows a shape and strides that make no sense");
  if (or_nothing && out.shape.total_bytes() == 0) return out;
  if (out.shape.total_bytes() == 0) raise(ErrorCode::invalid_argument, "the array has 0 bytes");
  if (out.address == 0) raise(ErrorCode::invalid_argument, "the array's memory was freed: its address is 0");
  return out;
}

std::optional<Owner> owner_of(py::handle object, const View& view) {
  py::object root = py::reinterpret_borrow<py::object>(object);
  const py::object array = numpy_array_type();
  if (!array.is_none() && py::isinstance(root, array)) {
    while (py::isinstance(root.attr("base"), array)) root = root.attr("base");
    // Who else lent it the memory may take it back: only arrays that own theirs are followed.
    if (!root.attr("base").is_none() || !py::cast<bool>(root.attr("flags").attr("owndata"))) return std::nullopt;
    const auto address = py::cast<std::uintptr_t>(root.attr("ctypes").attr("data"));
    return Owner{root, address, py::cast<std::uint64_t>(root.attr("nbytes"))};
  }
  if (py::str(py::type::handle_of(root).attr("__module__")).cast<std::string>().rfind("torch", 0) != 0 ||
      !py::hasattr(root, "data_ptr"))
    return std::nullopt;
  // A tensor dies before its storage does; one that is a view of another keeps that one.
  if (!root.attr("_base").is_none()) root = root.attr("_base");
  const View whole = root.is(object) ? view : view_of(root);
  const auto [address, size] = whole.range();
  const auto [used, used_size] = view.range();
  if (used < address || used + used_size > address + size) return std::nullopt;
  return Owner{root, address, size};
}

namespace {
struct Lent {
  dlpack::ManagedTensor managed{};
  std::int64_t shape[1];
  std::shared_ptr<void> keep;
};
}  // namespace

py::capsule to_dlpack(std::uintptr_t address, std::uint64_t size_bytes, int device_kind, int device,
                      std::shared_ptr<void> keep) {
  auto lent = std::make_unique<Lent>();
  lent->shape[0] = static_cast<std::int64_t>(size_bytes);
  lent->keep = std::move(keep);
  lent->managed.tensor = {
      reinterpret_cast<void*>(address), {device_kind, device}, 1, {1, 8, 1}, lent->shape, nullptr, 0};
  lent->managed.context = lent.get();
  lent->managed.deleter = [](dlpack::ManagedTensor* tensor) {
    if (interpreter_ends()) return;  // its owner is, too: what is left then is never freed
    const Locked locked;             // consumers may call it from anywhere
    delete static_cast<Lent*>(tensor->context);
  };
  PyObject* capsule = PyCapsule_New(&lent->managed, "dltensor", [](PyObject* unused) {
    if (PyCapsule_IsValid(unused, "dltensor") == 0) return;  // taken: its consumer deletes it
    auto* tensor = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(unused, "dltensor"));
    tensor->deleter(tensor);
  });
  if (capsule == nullptr) throw py::error_already_set();
  (void)lent.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace fairway::python

#include "views.h"

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

// The kind of a struct-module format: one letter behind an optional byte order.
char kind_of_format(const char* format, bool& plain) {
  plain = true;
  if (format == nullptr) return 0;
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

// C order, as all three protocols mean it where they say no strides.
void set_contiguous(Shape& shape) {
  shape.strides.resize(shape.counts.size());
  auto step = static_cast<std::int64_t>(shape.item_bytes);
  for (std::size_t i = shape.counts.size(); i-- > 0; step *= shape.counts[i]) shape.strides[i] = step;
}

View from_buffer(py::handle object) {
  auto hold = std::make_shared<BufferHold>();
  if (PyObject_GetBuffer(object.ptr(), &hold->buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0)
    throw py::error_already_set();
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
    set_contiguous(out.shape);
  out.read_only = buffer.readonly != 0;
  out.hold = std::move(hold);
  return out;
}

View from_dlpack(py::handle object) {
  const auto device = py::cast<std::pair<int, int>>(object.attr("__dlpack_device__")());
  py::object capsule;
  if (device.first == dlpack::kCuda)
    capsule = object.attr("__dlpack__")(py::arg("stream") = -1);  // order is by stream= of the transfer
  else if (device.first == dlpack::kCpu || device.first == dlpack::kCudaHost || device.first == dlpack::kCudaManaged)
    capsule = object.attr("__dlpack__")();
  else
    raise(ErrorCode::unsupported, "the tensor is on a device of DLPack's kind " + std::to_string(device.first) +
                                      "; Fairway knows CPUs (1) and NVIDIA GPUs (2, 3, 13)");
  auto* tensor = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (tensor == nullptr) throw py::error_already_set();
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
    set_contiguous(out.shape);
  else
    for (std::int32_t i = 0; i < in.dimensions; ++i)
      out.shape.strides.push_back(in.strides[i] * static_cast<std::int64_t>(out.shape.item_bytes));
  out.on_gpu = in.device.kind == dlpack::kCuda;
  out.gpu = in.device.id;
  out.hold = std::move(hold);
  return out;
}

View from_cuda_interface(py::handle object) {
  const py::dict said = object.attr("__cuda_array_interface__");
  const auto data = py::cast<std::pair<std::uintptr_t, bool>>(said["data"]);
  const auto type = py::cast<std::string>(said["typestr"]);  // "<f4"
  View out;
  if (type.size() < 3) raise(ErrorCode::invalid_argument, "__cuda_array_interface__ has the typestr '" + type + "'");
  refuse_objects(type[1] != 'O');
  out.kind = type[1] == 'V' || type.substr(1) == "u1" ? '\0' : type[1];
  out.address = data.first;
  out.read_only = data.second;
  out.shape.item_bytes = std::stoul(type.substr(2));
  out.shape.counts = py::cast<std::vector<std::int64_t>>(said["shape"]);
  if (said.contains("strides") && !said["strides"].is_none())
    out.shape.strides = py::cast<std::vector<std::int64_t>>(said["strides"]);
  else
    set_contiguous(out.shape);
  out.on_gpu = true;
  out.hold = std::make_shared<ObjectHold>(py::reinterpret_borrow<py::object>(object));
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

View view_of(py::handle object) {
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
    py::gil_scoped_acquire locked;  // consumers may call it from anywhere
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

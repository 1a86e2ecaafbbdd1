#pragma once

#include <cstdint>

// DLPack's C structs, as its specification (version 0.8, which every framework still takes) lays them out.
namespace fairway::python::dlpack {

struct Device {
  std::int32_t kind;  // kCpu and so on
  std::int32_t id;
};
inline constexpr std::int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

struct DataType {
  std::uint8_t code;  // 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t dimensions;
  DataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

}  // namespace fairway::python::dlpack

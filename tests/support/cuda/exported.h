#pragma once

#include <cstdint>

namespace standin {

// The stand-in driver's "dma-buf": a file that says where in this process the bytes are accessible.
struct Exported {
  std::uint64_t magic = kMagic;
  unsigned char* bytes = nullptr;
  std::uint64_t size = 0;
  int device = 0;
  static constexpr std::uint64_t kMagic = 0x66756261'6d640a01;
};

}  // namespace standin

#pragma once

#include <cstdint>

namespace standin {

// What the stand-in driver's "dma-buf" is: a file that says where the bytes can be touched, within this process.
struct Exported {
  std::uint64_t magic = kMagic;
  unsigned char* bytes = nullptr;
  std::uint64_t size = 0;
  int device = 0;
  static constexpr std::uint64_t kMagic = 0x66756261'6d640a01;
};

}  // namespace standin

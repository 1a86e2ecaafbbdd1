#pragma once

#include <cstdint>

#include "topology/accelerator.h"

// GPUs whose number no source tells: their ordinals stand from here on, and they are called by their bus ids.
namespace fairway::topology {

inline constexpr std::uint32_t kNoNumber = 60000;

// In files: an unknown number is left out.
template <class N>
struct GpuNumber {
  N& ordinal;
};
template <class N>
GpuNumber(N&) -> GpuNumber<N>;

inline bool is_numbered(const Gpu& gpu) {
  return gpu.ordinal < kNoNumber || !gpu.pci;
}

}  // namespace fairway::topology

// Compiled with AVX2 and F16C; combine_of() and scale_of() take it where the CPU has both.
#define FAIRWAY_LOOPS avx2_loops
#include "collectives/host/combine_loops.h"

namespace fairway::collectives {

Combine avx2_combine_of(DataType type, Reduction reduction);  // found by reduce.cc
Scale avx2_scale_of(DataType type);

Combine avx2_combine_of(DataType type, Reduction reduction) {
  return avx2_loops::find(type, reduction);
}

Scale avx2_scale_of(DataType type) {
  return avx2_loops::find_scale(type);
}

}  // namespace fairway::collectives

// Compiled with AVX2 and F16C; combine_of() takes it where the CPU has both.
#define FAIRWAY_LOOPS avx2_loops
#include "collectives/combine_loops.h"

namespace fairway::collectives {

Combine avx2_combine_of(DataType type, Reduction reduction);  // found by reduce.cc

Combine avx2_combine_of(DataType type, Reduction reduction) {
  return avx2_loops::find(type, reduction);
}

}  // namespace fairway::collectives

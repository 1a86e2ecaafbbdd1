#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/collectives.h"

// The arithmetic of collectives. Pure, any alignment.
namespace fairway::collectives {

// into[i] = a[i] combined with b[i], for `count` elements. `into` is a, b, or apart from both. average: the sum.
using Combine = void (*)(void* into, const void* a, const void* b, std::size_t count);
// Null for types of one byte that are combined in f32.
[[nodiscard]] Combine combine_of(DataType type, Reduction reduction);  // the fastest that this CPU has
// The same without any special instruction.
[[nodiscard]] Combine plain_combine_of(DataType type, Reduction reduction);

// Types of one byte, by way of f32: into[i] = from[i]; into[i] combined with from[i]; into[i] = from[i] / by, rounded
// to the nearest, ties to even, and to the largest number if it is larger.
void widen(float* into, const void* from, DataType type, std::size_t count);
void combine_wide(float* into, const void* from, DataType type, Reduction reduction, std::size_t count);
void narrow(void* into, const float* from, DataType type, std::size_t count, float by);

// A copy past the caches, for memory that is larger than they are and is not read soon.
void copy_past_caches(void* into, const void* from, std::size_t bytes);

// data[i] = data[i] / by: the end of an average.
void divide(void* data, DataType type, std::size_t count, std::uint32_t by);

// into[i] = from[i] * by, rounded once: the beginning of a premul_sum. `into` is from, or apart from it. f64 is
// multiplied in f64; other floating-point types, and `by`, in f32; integers are not.
using Scale = void (*)(void* into, const void* from, std::size_t count, double by);
void scale(void* into, const void* from, DataType type, std::size_t count, double by);
// Null for types of one byte and for integers.
[[nodiscard]] Scale scale_of(DataType type);        // the fastest that this CPU has
[[nodiscard]] Scale plain_scale_of(DataType type);  // without any special instruction

}  // namespace fairway::collectives

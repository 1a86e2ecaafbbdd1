#pragma once

#include <cstddef>

#include "group_call.h"

// The values of an operation: pure functions of what was drawn, the rank and the place.
namespace fairway::tool::soak::groups {

// Bytes of one element.
std::size_t width_of(const Drawn& drawn);
bool combines(CollectiveKind kind);
// Element `index` of a rank's input, `width_of` bytes.
void give(const Drawn& drawn, int rank, std::size_t index, std::byte* into);
// The reduction of element `index` of all ranks, as its type has it.
void reduce(const Drawn& drawn, int size, std::size_t index, std::byte* into);
// Reduction::custom: `context` is the number of bytes. The exclusive or of bytes; and of 16 bytes, the composition of
// maps x -> a x + b, which is not commutative.
void combine_bytes(void* into, const void* a, const void* b, std::size_t count, void* context);
void compose(void* into, const void* a, const void* b, std::size_t count, void* context);

}  // namespace fairway::tool::soak::groups

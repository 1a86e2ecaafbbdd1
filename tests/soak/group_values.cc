#include "group_values.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "collectives/halves.h"

namespace fairway::tool::soak::groups {
namespace {

std::uint64_t raw(const Drawn& drawn, int rank, std::size_t index, std::size_t word = 0) {
  return mix(drawn.salt + 0x9E3779B97F4A7C15U * static_cast<std::uint64_t>(rank + 1) + 0xD1B54A32D192ED03U * index +
             0x8CB92BA72F3D8DD7U * word);
}

bool is_float(DataType type) {
  return type >= DataType::f16;
}
bool is_signed(DataType type) {
  return type == DataType::i8 || type == DataType::i16 || type == DataType::i32 || type == DataType::i64;
}

// Whole numbers from 0 to 7, or factors whose product is small: exact whatever the order, for up to 17 ranks.
double exact(const Drawn& drawn, int rank, std::size_t index) {
  const std::uint64_t bits = raw(drawn, rank, index) >> 17;
  if (drawn.reduction == Reduction::product) return rank % 4 == 0 ? 1.0 + static_cast<double>(bits % 2) : 1.0;
  return static_cast<double>(bits % 8);
}
template <class T>
T real(const Drawn& drawn, int rank, std::size_t index) {
  const auto part = static_cast<T>(static_cast<std::int32_t>(raw(drawn, rank, index) >> 32)) / static_cast<T>(1 << 24);
  return drawn.reduction == Reduction::product ? static_cast<T>(1) + part / static_cast<T>(256) : part;
}

void store(DataType type, double value, std::byte* into) {
  const auto put = [into](auto typed) { std::memcpy(into, &typed, sizeof typed); };
  switch (type) {
    case DataType::f16: return put(collectives::half_of_float(static_cast<float>(value)));
    case DataType::bf16: return put(collectives::bfloat_of_float(static_cast<float>(value)));
    case DataType::f32: return put(static_cast<float>(value));
    case DataType::f64: return put(value);
    case DataType::f8e4m3: return put(collectives::e4m3_of_float(static_cast<float>(value)));
    default: return put(collectives::e5m2_of_float(static_cast<float>(value)));
  }
}

template <class T>
T combined(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::product: return a * b;
    case Reduction::min: return std::min(a, b);
    case Reduction::max: return std::max(a, b);
    default: return a + b;
  }
}

// Each step rounded to T, in the order of ranks.
template <class T>
T folded(const Drawn& drawn, int size, std::size_t index) {
  T all = real<T>(drawn, 0, index);
  for (int rank = 1; rank < size; ++rank) all = combined(drawn.reduction, all, real<T>(drawn, rank, index));
  return drawn.reduction == Reduction::average ? all / static_cast<T>(size) : all;
}

void reduce_exact(const Drawn& drawn, int size, std::size_t index, std::byte* into) {
  double all = exact(drawn, 0, index);
  for (int rank = 1; rank < size; ++rank) all = combined(drawn.reduction, all, exact(drawn, rank, index));
  if (drawn.reduction == Reduction::average)
    all = drawn.type == DataType::f64 ? all / size : static_cast<float>(all) / static_cast<float>(size);
  store(drawn.type, all, into);
}

std::uint64_t whole(const Drawn& drawn, int rank, std::size_t index) {
  const std::uint64_t bits = raw(drawn, rank, index);
  if (drawn.reduction == Reduction::average) return bits % 7;
  const auto unused = static_cast<unsigned>(64 - 8 * size_of(drawn.type));
  return is_signed(drawn.type) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << unused) >> unused)
                               : (bits << unused) >> unused;
}

// Sums and products wrap around, in 64 bits as in fewer.
void reduce_whole(const Drawn& drawn, int size, std::size_t index, std::byte* into) {
  std::uint64_t all = whole(drawn, 0, index);
  for (int rank = 1; rank < size; ++rank) {
    const std::uint64_t next = whole(drawn, rank, index);
    all = is_signed(drawn.type) && (drawn.reduction == Reduction::min || drawn.reduction == Reduction::max)
              ? static_cast<std::uint64_t>(
                    combined(drawn.reduction, static_cast<std::int64_t>(all), static_cast<std::int64_t>(next)))
              : combined(drawn.reduction, all, next);
  }
  if (drawn.reduction == Reduction::average) all /= static_cast<std::uint64_t>(size);
  std::memcpy(into, &all, size_of(drawn.type));
}

void reduce_custom(const Drawn& drawn, int size, std::size_t index, std::byte* into) {
  std::vector<std::byte> next(drawn.custom_bytes);
  give(drawn, 0, index, into);
  std::size_t bytes = drawn.custom_bytes;
  for (int rank = 1; rank < size; ++rank) {
    give(drawn, rank, index, next.data());
    (drawn.reproducible ? compose : combine_bytes)(into, into, next.data(), 1, &bytes);
  }
}

}  // namespace

bool combines(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

std::size_t width_of(const Drawn& drawn) {
  return combines(drawn.kind) && drawn.reduction == Reduction::custom ? drawn.custom_bytes : size_of(drawn.type);
}

void give(const Drawn& drawn, int rank, std::size_t index, std::byte* into) {
  if (combines(drawn.kind) && drawn.reduction != Reduction::custom) {
    if (!is_float(drawn.type)) {
      const std::uint64_t value = whole(drawn, rank, index);
      std::memcpy(into, &value, size_of(drawn.type));
    } else if (!drawn.real) {
      store(drawn.type, exact(drawn, rank, index), into);
    } else if (drawn.type == DataType::f64) {
      store(drawn.type, real<double>(drawn, rank, index), into);
    } else {
      store(drawn.type, static_cast<double>(real<float>(drawn, rank, index)), into);
    }
    return;
  }
  const std::size_t width = width_of(drawn);
  for (std::size_t at = 0; at < width; at += 8) {
    const std::uint64_t bits = raw(drawn, rank, index, at);
    std::memcpy(into + at, &bits, std::min<std::size_t>(8, width - at));
  }
}

void reduce(const Drawn& drawn, int size, std::size_t index, std::byte* into) {
  if (drawn.reduction == Reduction::custom) return reduce_custom(drawn, size, index, into);
  if (!is_float(drawn.type)) return reduce_whole(drawn, size, index, into);
  if (!drawn.real) return reduce_exact(drawn, size, index, into);
  if (drawn.type == DataType::f64) return store(drawn.type, folded<double>(drawn, size, index), into);
  store(drawn.type, static_cast<double>(folded<float>(drawn, size, index)), into);
}

void combine_bytes(void* into, const void* a, const void* b, std::size_t count, void* context) {
  const std::size_t bytes = count * *static_cast<const std::size_t*>(context);
  for (std::size_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(into)[i] =
        static_cast<const unsigned char*>(a)[i] ^ static_cast<const unsigned char*>(b)[i];
}

void compose(void* into, const void* a, const void* b, std::size_t count, void*) {
  struct Map {
    std::uint64_t times, plus;
  };
  for (std::size_t i = 0; i < count; ++i) {
    Map first, then;
    std::memcpy(&first, static_cast<const char*>(a) + i * sizeof first, sizeof first);
    std::memcpy(&then, static_cast<const char*>(b) + i * sizeof then, sizeof then);
    const Map both{first.times * then.times, first.plus * then.times + then.plus};
    std::memcpy(static_cast<char*>(into) + i * sizeof both, &both, sizeof both);
  }
}

}  // namespace fairway::tool::soak::groups

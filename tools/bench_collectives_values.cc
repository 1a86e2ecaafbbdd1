#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "bench_collectives.h"

namespace fairway::tool::bench {
namespace {

// Small whole numbers: sums have one right value in every type, whatever the order.
std::uint64_t given(int rank, std::uint64_t at) {
  return (static_cast<std::uint64_t>(rank) * 7 + at % 97) % 8;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put(std::byte* memory, std::uint64_t at, DataType type, std::uint64_t value) {
  std::byte* const place = memory + at * size_of(type);
  switch (type) {
    case DataType::f32: return store(place, static_cast<float>(value));
    case DataType::f64: return store(place, static_cast<double>(value));
    default: return void(std::memcpy(place, &value, size_of(type)));  // little-endian, and sums wrap around
  }
}

std::uint64_t whole_part(std::uint64_t value, DataType type) {
  return size_of(type) >= 8 ? value : value & ((std::uint64_t{1} << 8 * size_of(type)) - 1);
}

// Of a premul_sum: another one at each rank beside another.
std::uint64_t factor_of(const CollectiveWork& work, int rank) {
  return work.combines() && work.reduction == Reduction::premul_sum ? static_cast<std::uint64_t>(rank) % 4 + 1 : 1;
}

std::uint64_t reduced(const CollectiveWork& work, std::uint64_t at) {
  std::uint64_t value = given(0, at) * factor_of(work, 0);
  for (int rank = 1; rank < work.ranks; ++rank) {
    const std::uint64_t next = given(rank, at) * factor_of(work, rank);
    switch (work.reduction) {
      case Reduction::min: value = std::min(value, next); break;
      case Reduction::max: value = std::max(value, next); break;
      default: value += next; break;
    }
  }
  return value;
}

// Where a rank's blocks lie in the whole.
struct Sides {
  bool many_in = false, many_out = false;
};
Sides sides_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather: return {false, true};
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::scatter: return {true, false};
    case CollectiveKind::all_to_all: return {true, true};
    default: return {};
  }
}

template <class Value, class List>
Result<Value> named(const std::string& name, const List& all, const char* what) {
  std::string known;
  for (const Value each : all) {
    if (to_string(each) == name) return each;
    known += (known.empty() ? "" : ", ") + std::string(to_string(each));
  }
  return Status(ErrorCode::invalid_argument, fmt::format("{}: '{}' is none of {}", what, name, known));
}

}  // namespace

bool CollectiveWork::combines() const {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

std::uint64_t CollectiveWork::count() const {
  if (kind == CollectiveKind::barrier) return 0;
  const Sides sides = sides_of(kind);
  const std::uint64_t elements = bytes / size_of(type);
  const std::uint64_t one = sides.many_in || sides.many_out ? elements / static_cast<std::uint64_t>(ranks) : elements;
  return std::max<std::uint64_t>(1, one);
}

std::uint64_t CollectiveWork::whole() const {
  const Sides sides = sides_of(kind);
  return count() * size_of(type) * (sides.many_in || sides.many_out ? static_cast<std::uint64_t>(ranks) : 1);
}

// As in nccl-tests' doc/PERFORMANCE.md.
double CollectiveWork::bus_factor() const {
  const double n = ranks;
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * (n - 1) / n;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce: return 1;
    case CollectiveKind::barrier: return 0;
    default: return (n - 1) / n;
  }
}

CollectiveMemory::CollectiveMemory(const CollectiveWork& work, int rank) : work_(work), rank_(rank) {
  const Sides sides = sides_of(work.kind);
  const std::uint64_t count = work.count(), all = count * static_cast<std::uint64_t>(work.ranks);
  const std::uint64_t in = sides.many_in ? all : count, out = sides.many_out ? all : count;
  input_.resize(in * size_of(work.type));
  output_.resize(out * size_of(work.type), std::byte{0xA5});
  for (std::uint64_t i = 0; i < in; ++i) put(input_.data(), i, work.type, given(rank, i));
  call_.kind = work.kind;
  call_.input = input_.data();
  call_.output = output_.data();
  call_.count = count;
  call_.type = work.type;
  call_.reduction = work.reduction;
  call_.factor = static_cast<double>(factor_of(work, rank));
  call_.algorithm = work.algorithm;
}

std::uint64_t CollectiveMemory::wrong() const {
  const std::uint64_t count = work_.count();
  std::vector<std::byte> right(size_of(work_.type));
  std::uint64_t found = 0;
  const auto compare = [&](std::uint64_t at, std::uint64_t value) {
    std::memset(right.data(), 0, right.size());
    put(right.data(), 0, work_.type, whole_part(value, work_.type));
    found += std::memcmp(right.data(), output_.data() + at * right.size(), right.size()) != 0 ? 1 : 0;
  };
  const auto own = static_cast<std::uint64_t>(rank_) * count;
  for (std::uint64_t i = 0; i < count; ++i) switch (work_.kind) {
      case CollectiveKind::all_reduce: compare(i, reduced(work_, i)); break;
      case CollectiveKind::reduce:
        if (rank_ == 0) compare(i, reduced(work_, i));
        break;
      case CollectiveKind::broadcast: compare(i, given(0, i)); break;
      case CollectiveKind::scatter: compare(i, given(0, own + i)); break;
      case CollectiveKind::reduce_scatter: compare(i, reduced(work_, own + i)); break;
      case CollectiveKind::gather:
      case CollectiveKind::all_gather:
        for (int block = 0; block < work_.ranks && (rank_ == 0 || work_.kind == CollectiveKind::all_gather); ++block)
          compare(static_cast<std::uint64_t>(block) * count + i, given(block, i));
        break;
      case CollectiveKind::all_to_all:
        for (int block = 0; block < work_.ranks; ++block)
          compare(static_cast<std::uint64_t>(block) * count + i, given(block, own + i));
        break;
      case CollectiveKind::barrier:
      case CollectiveKind::all_to_allv: break;
    }
  return found;
}

const std::vector<std::string>& collective_types() {
  static const std::vector<std::string> kTypes{"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"};
  return kTypes;
}

Result<CollectiveKind> kind_of(const std::string& name) {
  constexpr CollectiveKind kAll[] = {
      CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
      CollectiveKind::all_gather, CollectiveKind::gather,         CollectiveKind::scatter,
      CollectiveKind::all_to_all, CollectiveKind::reduce_scatter, CollectiveKind::barrier};
  return named<CollectiveKind>(name, kAll, "--operation");
}

Result<DataType> type_of(const std::string& name) {
  constexpr DataType kAll[] = {DataType::i8,  DataType::u8,  DataType::i16, DataType::u16, DataType::i32,
                               DataType::u32, DataType::i64, DataType::u64, DataType::f32, DataType::f64};
  return named<DataType>(name, kAll, "--type");
}

Result<Reduction> reduction_of(const std::string& name) {
  constexpr Reduction kAll[] = {Reduction::sum, Reduction::min, Reduction::max, Reduction::premul_sum};
  return named<Reduction>(name, kAll, "--reduction");
}

Result<Algorithm> algorithm_of(const std::string& name) {
  constexpr Algorithm kAll[] = {
      Algorithm::automatic,     Algorithm::one_shot,    Algorithm::direct, Algorithm::recursive_doubling,
      Algorithm::ring,          Algorithm::binomial,    Algorithm::chain,  Algorithm::bruck,
      Algorithm::dissemination, Algorithm::hierarchical};
  return named<Algorithm>(name, kAll, "--algorithm");
}

}  // namespace fairway::tool::bench

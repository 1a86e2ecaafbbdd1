#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "collectives.h"

namespace fairway::tool::bench {
namespace {

bool is_byte_float(DataType type) {
  return type == DataType::f8e4m3 || type == DataType::f8e5m2;
}

// Small whole numbers, of which every result is exact in its type, in any order and for 64 ranks:
//   average     one number and the same with ones added and taken away in pairs of ranks; sums stay below 128
//   product     a two now and then, six at the most; else ones
//   8-bit sums  1 to 3, of which each second rank takes away what the one before it has put in; the first pair differs
//   other sums  0 to 7, and of bf16, which knows every number up to 256, 0 to 3, or to 1 where factors double some
//   what moves  0 to 7
std::int64_t given(const CollectiveWork& work, int rank, std::uint64_t at) {
  const auto own = static_cast<std::uint64_t>(rank), pair = own / 2;
  if (work.combines()) {
    if (work.reduction == Reduction::average) {
      const auto most = static_cast<std::uint64_t>(std::clamp(126 / work.ranks, 1, 3));
      const auto middle = static_cast<std::int64_t>(1 + at % most);
      if (rank == work.ranks - 1 && rank % 2 == 0) return middle;
      return middle + ((own + pair + at) % 2 == 0 ? 1 : -1);
    }
    if (work.reduction == Reduction::product) return own % 11 == at % 11 ? 2 : 1;
    if (is_byte_float(work.type)) {
      const auto value = static_cast<std::int64_t>(1 + (pair + at) % 3);
      return rank % 2 == 0 ? value : rank == 1 ? static_cast<std::int64_t>(at % 2) - value : -value;
    }
  }
  const bool is_narrow = work.combines() && work.type == DataType::bf16;
  const std::uint64_t most = !is_narrow ? 8 : work.reduction == Reduction::premul_sum ? 2 : 4;
  return static_cast<std::int64_t>((own * 7 + at % 97) % most);
}

// A whole number that the type has exactly: 1 bit of sign, then these.
struct Form {
  int exponent_bits, mantissa_bits;
};
std::uint32_t narrow(std::int64_t value, const Form& form) {
  if (value == 0) return 0;
  int exponent = 0;
  const double half = std::frexp(static_cast<double>(value < 0 ? -value : value), &exponent);  // 0.5 to 1
  const auto mantissa = static_cast<std::uint32_t>(std::ldexp(2 * half - 1, form.mantissa_bits));
  const auto biased = static_cast<std::uint32_t>(exponent - 1 + (1 << (form.exponent_bits - 1)) - 1);
  return (value < 0 ? 1U : 0U) << (form.exponent_bits + form.mantissa_bits) | biased << form.mantissa_bits | mantissa;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put(std::byte* memory, std::uint64_t at, DataType type, std::int64_t value) {
  std::byte* const place = memory + at * size_of(type);
  switch (type) {
    case DataType::f16: return store(place, static_cast<std::uint16_t>(narrow(value, {5, 10})));
    case DataType::bf16: return store(place, static_cast<std::uint16_t>(narrow(value, {8, 7})));
    case DataType::f8e4m3: return store(place, static_cast<std::uint8_t>(narrow(value, {4, 3})));
    case DataType::f8e5m2: return store(place, static_cast<std::uint8_t>(narrow(value, {5, 2})));
    case DataType::f32: return store(place, static_cast<float>(value));
    case DataType::f64: return store(place, static_cast<double>(value));
    default: return void(std::memcpy(place, &value, size_of(type)));  // little-endian, and sums wrap around
  }
}

// Of a premul_sum: the same for a pair of ranks, so that what one takes away of the other's stays exact.
std::int64_t factor_of(const CollectiveWork& work, int rank) {
  return work.combines() && work.reduction == Reduction::premul_sum && rank / 2 % 2 == 0 ? 2 : 1;
}

std::int64_t reduced(const CollectiveWork& work, std::uint64_t at) {
  std::int64_t value = given(work, 0, at) * factor_of(work, 0);
  for (int rank = 1; rank < work.ranks; ++rank) {
    const std::int64_t next = given(work, rank, at) * factor_of(work, rank);
    switch (work.reduction) {
      case Reduction::min: value = std::min(value, next); break;
      case Reduction::max: value = std::max(value, next); break;
      case Reduction::product: value *= next; break;
      default: value += next; break;
    }
  }
  return work.reduction == Reduction::average ? value / work.ranks : value;
}

// After so many elements values repeat: a multiple of all by which given() divides.
constexpr std::uint64_t kPeriod = std::uint64_t{97} * 11 * 6;

// value(i) for each element, as long as they differ.
template <class Value>
std::vector<std::byte> period_of(DataType type, std::uint64_t count, Value value) {
  const std::uint64_t elements = std::min(count, kPeriod);
  std::vector<std::byte> made(elements * size_of(type));
  for (std::uint64_t i = 0; i < elements; ++i) put(made.data(), i, type, value(i));
  return made;
}

template <class Value>
void fill_all(std::vector<std::byte>& memory, DataType type, Value value) {
  const std::vector<std::byte> part = period_of(type, memory.size() / size_of(type), value);
  for (std::size_t at = 0; at < memory.size(); at += part.size())
    std::memcpy(memory.data() + at, part.data(), std::min(part.size(), memory.size() - at));
}

// How many of `count` elements there are not value(i).
template <class Value>
std::uint64_t differing(const std::byte* memory, std::uint64_t count, DataType type, Value value) {
  const std::size_t width = size_of(type);
  const std::vector<std::byte> right = period_of(type, count, value);
  std::uint64_t found = 0;
  for (std::size_t at = 0, all = count * width; at < all; at += right.size()) {
    const std::size_t bytes = std::min(right.size(), all - at);
    if (std::memcmp(memory + at, right.data(), bytes) == 0) continue;
    for (std::size_t i = 0; i < bytes; i += width)
      found += std::memcmp(memory + at + i, right.data() + i, width) != 0 ? 1 : 0;
  }
  return found;
}

// Where a rank's blocks lie in the whole.
struct Sides {
  bool many_in = false, many_out = false;
};
Sides sides_of(const CollectiveWork& work) {
  if (work.messages) return {};
  switch (work.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather: return {false, true};
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::scatter: return {true, false};
    case CollectiveKind::all_to_all: return {true, true};
    default: return {};
  }
}

bool is_uneven(const CollectiveWork& work) {
  return !work.messages && work.kind == CollectiveKind::all_to_allv;
}

}  // namespace

bool CollectiveWork::combines() const {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

bool CollectiveWork::has_root() const {
  return !messages && (kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast ||
                       kind == CollectiveKind::gather || kind == CollectiveKind::scatter);
}

std::string_view CollectiveWork::operation() const {
  return messages ? std::string_view("send_recv") : to_string(kind);
}

std::uint64_t CollectiveWork::units() const {
  const auto n = static_cast<std::uint64_t>(ranks);
  return is_uneven(*this) ? n * (n + 1) / 2 : 1;
}

std::uint64_t CollectiveWork::units(int from, int to) const {
  return static_cast<std::uint64_t>((to - from + ranks) % ranks + 1);
}

std::uint64_t CollectiveWork::count() const {
  if (!messages && kind == CollectiveKind::barrier) return 0;
  const Sides sides = sides_of(*this);
  const std::uint64_t elements = bytes / size_of(type) / units();
  const std::uint64_t one = sides.many_in || sides.many_out ? elements / static_cast<std::uint64_t>(ranks) : elements;
  return std::max<std::uint64_t>(1, one);
}

std::uint64_t CollectiveWork::whole() const {
  const Sides sides = sides_of(*this);
  return count() * size_of(type) * units() * (sides.many_in || sides.many_out ? static_cast<std::uint64_t>(ranks) : 1);
}

// As in nccl-tests' doc/PERFORMANCE.md. Of all_to_allv all but the block that a rank has for itself, the shortest.
double CollectiveWork::bus_factor() const {
  const double n = ranks;
  if (messages) return 1;
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * (n - 1) / n;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce: return 1;
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::all_to_allv: return 1 - 1 / static_cast<double>(units());
    default: return (n - 1) / n;
  }
}

CollectiveMemory::CollectiveMemory(const CollectiveWork& work, int rank) : work_(work), rank_(rank) {
  const Sides sides = sides_of(work);
  const std::uint64_t count = work.count(), all = count * static_cast<std::uint64_t>(work.ranks);
  const std::uint64_t in = sides.many_in ? all : count * work.units();
  const std::uint64_t out = sides.many_out ? all : count * work.units();
  input_.resize(in * size_of(work.type));
  output_.resize(out * size_of(work.type), std::byte{0xA5});
  fill_all(input_, work.type, [&](std::uint64_t i) { return given(work, rank, i); });
  // A broadcast has one buffer, as MPI's and Gloo's have.
  const bool in_place = work.kind == CollectiveKind::broadcast && !work.messages;
  if (in_place && rank == 0) output_ = input_;
  call_.kind = work.kind;
  call_.input = in_place ? output_.data() : input_.data();
  call_.output = output_.data();
  call_.count = count;
  call_.type = work.type;
  call_.reduction = work.reduction;
  call_.factor = static_cast<double>(factor_of(work, rank));
  call_.algorithm = work.algorithm;
  call_.local_completion = work.local;
  if (!is_uneven(work)) return;
  call_.count = 0;
  send_ = blocks(rank, true);
  receive_ = blocks(rank, false);
  call_.send = {send_.counts, send_.offsets};
  call_.receive = {receive_.counts, receive_.offsets};
}

Collective CollectiveMemory::call_on(void* input, void* output) const {
  Collective call = call_;
  call.input = call_.input == call_.output ? output : input;
  call.output = output;
  return call;
}

CollectiveMemory::OwnBlocks CollectiveMemory::blocks(int rank, bool sent) const {
  OwnBlocks made;
  std::size_t at = 0;
  for (int other = 0; other < work_.ranks; ++other) {
    const std::uint64_t units = sent ? work_.units(rank, other) : work_.units(other, rank);
    made.counts.push_back(static_cast<std::size_t>(units * work_.count()));
    made.offsets.push_back(at);
    at += made.counts.back();
  }
  return made;
}

std::uint64_t CollectiveMemory::wrong() const {
  const std::uint64_t count = work_.count(), own = static_cast<std::uint64_t>(rank_) * count;
  std::uint64_t found = 0;
  const auto compare = [&](std::uint64_t at, std::uint64_t many, auto value) {
    found += differing(output_.data() + at * size_of(work_.type), many, work_.type, value);
  };
  const auto of = [this](int rank, std::uint64_t from) {  // what that rank has from there on
    return [this, rank, from](std::uint64_t i) { return given(work_, rank, from + i); };
  };
  const auto sum = [this](std::uint64_t from) {
    return [this, from](std::uint64_t i) { return reduced(work_, from + i); };
  };
  if (work_.messages) {
    compare(0, count, of((rank_ + work_.ranks - 1) % work_.ranks, 0));
    return found;
  }
  switch (work_.kind) {
    case CollectiveKind::all_reduce: compare(0, count, sum(0)); break;
    case CollectiveKind::reduce:
      if (rank_ == 0) compare(0, count, sum(0));
      break;
    case CollectiveKind::broadcast: compare(0, count, of(0, 0)); break;
    case CollectiveKind::scatter: compare(0, count, of(0, own)); break;
    case CollectiveKind::reduce_scatter: compare(0, count, sum(own)); break;
    case CollectiveKind::gather:
    case CollectiveKind::all_gather:
      for (int block = 0; block < work_.ranks && (rank_ == 0 || work_.kind == CollectiveKind::all_gather); ++block)
        compare(static_cast<std::uint64_t>(block) * count, count, of(block, 0));
      break;
    case CollectiveKind::all_to_all:
      for (int block = 0; block < work_.ranks; ++block)
        compare(static_cast<std::uint64_t>(block) * count, count, of(block, own));
      break;
    case CollectiveKind::all_to_allv:
      for (int from = 0; from < work_.ranks; ++from) {
        const auto block = static_cast<std::size_t>(from);
        compare(receive_.offsets[block], receive_.counts[block],
                of(from, blocks(from, true).offsets[static_cast<std::size_t>(rank_)]));
      }
      break;
    case CollectiveKind::barrier: break;
  }
  return found;
}

}  // namespace fairway::tool::bench

// Whether a call is well formed, and what a schedule needs of it.
#include <fmt/format.h>

#include "collectives/state.h"

namespace fairway::collectives {
namespace {

struct Extents {
  std::uint64_t input = 0, output = 0;  // bytes
};

Status invalid(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::reduce || kind == CollectiveKind::broadcast || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}

Extents extents_of(const Collective& call, int rank, int size) {
  const std::uint64_t one = call.count * width_of(call), all = one * static_cast<std::uint64_t>(size);
  const bool root = rank == call.root;
  switch (call.kind) {
    case CollectiveKind::barrier: return {};
    case CollectiveKind::all_reduce: return {one, one};
    case CollectiveKind::reduce: return {one, root ? one : 0};
    case CollectiveKind::broadcast: return {root ? one : 0, one};
    case CollectiveKind::all_gather: return {one, all};
    case CollectiveKind::gather: return {one, root ? all : 0};
    case CollectiveKind::scatter: return {root ? all : 0, one};
    case CollectiveKind::reduce_scatter: return {all, one};
    case CollectiveKind::all_to_all: return {all, all};
    case CollectiveKind::all_to_allv: break;
  }
  const auto reach = [&](const Blocks& blocks) {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < blocks.counts.size(); ++i)
      if (blocks.counts[i] != 0) most = std::max<std::uint64_t>(most, blocks.offsets[i] + blocks.counts[i]);
    return most * width_of(call);
  };
  return {reach(call.send), reach(call.receive)};
}

}  // namespace

bool lies_in_place(const Collective& call, int rank, int size) {
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const output = static_cast<const std::byte*>(call.output);
  if (input == nullptr || output == nullptr || call.count == 0) return false;  // without elements no rank differs
  const std::uint64_t mine = call.count * width_of(call) * static_cast<std::uint64_t>(rank);
  switch (call.kind) {
    case CollectiveKind::all_gather: return input == output + mine;
    case CollectiveKind::gather: return rank == call.root && input == output + mine;
    case CollectiveKind::reduce_scatter: return output == input + mine;
    case CollectiveKind::scatter: return rank == call.root && output == input + mine;
    case CollectiveKind::all_to_allv: return false;
    default: return input == output && size > 0;
  }
}

namespace {

Status check_blocks(const Blocks& blocks, int size, const char* name, std::uint64_t most) {
  if (blocks.counts.size() != static_cast<std::size_t>(size) || blocks.offsets.size() != blocks.counts.size())
    return invalid(fmt::format("{}.counts has {} elements and {}.offsets {}; each needs {}, one for each rank", name,
                               blocks.counts.size(), name, blocks.offsets.size(), size));
  for (std::size_t i = 0; i < blocks.counts.size(); ++i)
    if (blocks.counts[i] > most || blocks.offsets[i] > most)
      return invalid(fmt::format("{}: the block of rank {} is larger than memory can be", name, i));
  return {};
}

bool combines(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

Status check_custom(const Collective& call) {
  if (call.custom.combine == nullptr) return invalid("custom.combine is null");
  if (call.custom.element_bytes == 0) return invalid("custom.element_bytes is 0");
  return {};
}

Status check_factor(const Collective& call) {
  if (!is_premul(call))
    return call.factor == 1 ? Status() : invalid(fmt::format("factor is {}, which only premul_sum takes", call.factor));
  if (call.type >= DataType::f16) return {};  // behind the integers
  return invalid(fmt::format("type is {}: premul_sum is of floating-point types", to_string(call.type)));
}

}  // namespace

std::size_t width_of(const Collective& call) {
  return combines(call.kind) && call.reduction == Reduction::custom ? call.custom.element_bytes : size_of(call.type);
}

bool is_premul(const Collective& call) {
  return combines(call.kind) && call.reduction == Reduction::premul_sum;
}

bool is_wide(const Collective& call) {
  return combines(call.kind) && call.reduction != Reduction::custom &&
         (call.type == DataType::f8e4m3 || call.type == DataType::f8e5m2);
}

bool is_ordered(const Collective& call) {
  return combines(call.kind) && (call.reproducible || is_wide(call));
}

bool is_local(const Collective& call) {
  return call.local_completion && is_rooted(call.kind);
}

std::string member_name(int rank, const std::string& address) {
  return address.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, address);
}

Status check(const Collective& call, int rank, int size) {
  if (call.kind > CollectiveKind::all_to_allv) return invalid("kind is no collective");
  if (call.type > DataType::f8e5m2) return invalid("type is no data type");
  if (call.reduction > Reduction::premul_sum) return invalid("reduction is none");
  if (combines(call.kind) && call.reduction == Reduction::custom)
    if (Status status = check_custom(call); !status) return status;
  if (Status status = check_factor(call); !status) return status;
  if (is_rooted(call.kind) && (call.root < 0 || call.root >= size))
    return invalid(fmt::format("root {} is no rank of 0 to {}", call.root, size - 1));
  const std::uint64_t most = (std::uint64_t{1} << 62) / width_of(call) / static_cast<std::uint64_t>(size);
  if (call.count > most) return invalid("count is larger than memory can be");
  if (call.kind == CollectiveKind::all_to_allv) {
    if (Status status = check_blocks(call.send, size, "send", most); !status) return status;
    if (Status status = check_blocks(call.receive, size, "receive", most); !status) return status;
    const auto own = static_cast<std::size_t>(rank);
    if (call.send.counts[own] != call.receive.counts[own])
      return invalid(fmt::format("send.counts[{}] and receive.counts[{}], of this rank to itself, differ", rank, rank));
  }
  if (call.algorithm != Algorithm::automatic) {
    const bool ordered = is_ordered(call);
    if (!has_algorithm(call.kind, call.algorithm, ordered))
      return invalid(fmt::format("algorithm: {} has no {}{}", to_string(call.kind), to_string(call.algorithm),
                                 ordered ? " that combines in the order of ranks" : ""));
  }
  const Extents extents = extents_of(call, rank, size);
  if (extents.input != 0 && call.input == nullptr) return invalid("input is null");
  if (extents.output != 0 && call.output == nullptr) return invalid("output is null");
  if (extents.input == 0 || extents.output == 0 || lies_in_place(call, rank, size)) return {};
  const auto input = reinterpret_cast<std::uintptr_t>(call.input),
             output = reinterpret_cast<std::uintptr_t>(call.output);
  if (input < output + extents.output && output < input + extents.input)
    return invalid("input and output overlap, other than in place");
  return {};
}

Shape shape_of(const Collective& call, Algorithm algorithm, int rank, int size, std::uint64_t piece_bytes) {
  Shape shape;
  shape.kind = call.kind;
  shape.algorithm = algorithm;
  shape.rank = rank;
  shape.size = size;
  shape.root = is_rooted(call.kind) ? call.root : 0;
  shape.count = call.kind == CollectiveKind::barrier ? 0 : call.count;
  shape.element_bytes = width_of(call);
  shape.piece_bytes = piece_bytes;
  shape.in_place = lies_in_place(call, rank, size);
  shape.average = call.reduction == Reduction::average;
  shape.premul = is_premul(call);
  shape.ordered = is_ordered(call);
  shape.wide = is_wide(call);
  shape.local = is_local(call);
  shape.send = call.send;
  shape.receive = call.receive;
  return shape;
}

}  // namespace fairway::collectives

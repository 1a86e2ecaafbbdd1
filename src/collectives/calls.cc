// What a call is: whether it is well formed and what a schedule needs of it, in which words, by which algorithm and
// why, and which calls of a group travel as one.
#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "fairway/collectives.h"

#include "collectives/gpu/device/call.h"
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

// The words of the public enumerations.
namespace fairway {

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
    case DataType::f8e4m3:
    case DataType::f8e5m2: return 1;
    case DataType::i16:
    case DataType::u16:
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::i32:
    case DataType::u32:
    case DataType::f32: return 4;
    case DataType::i64:
    case DataType::u64:
    case DataType::f64: return 8;
  }
  return 0;
}

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::i8: return "i8";
    case DataType::u8: return "u8";
    case DataType::i16: return "i16";
    case DataType::u16: return "u16";
    case DataType::i32: return "i32";
    case DataType::u32: return "u32";
    case DataType::i64: return "i64";
    case DataType::u64: return "u64";
    case DataType::f16: return "f16";
    case DataType::bf16: return "bf16";
    case DataType::f32: return "f32";
    case DataType::f64: return "f64";
    case DataType::f8e4m3: return "f8e4m3";
    case DataType::f8e5m2: return "f8e5m2";
  }
  return "unknown type";
}

std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::product: return "product";
    case Reduction::min: return "min";
    case Reduction::max: return "max";
    case Reduction::average: return "average";
    case Reduction::custom: return "custom";
    case Reduction::premul_sum: return "premul_sum";
  }
  return "unknown reduction";
}

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce: return "reduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::gather: return "gather";
    case CollectiveKind::scatter: return "scatter";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_to_all: return "all_to_all";
    case CollectiveKind::all_to_allv: return "all_to_allv";
  }
  return static_cast<std::uint32_t>(kind) == collectives::gpu::kMessageKind
             ? "message"
             : "unknown collective";  // of stream_messages(), in progress
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic: return "automatic";
    case Algorithm::one_shot: return "one_shot";
    case Algorithm::direct: return "direct";
    case Algorithm::recursive_doubling: return "recursive_doubling";
    case Algorithm::ring: return "ring";
    case Algorithm::binomial: return "binomial";
    case Algorithm::chain: return "chain";
    case Algorithm::bruck: return "bruck";
    case Algorithm::dissemination: return "dissemination";
    case Algorithm::hierarchical: return "hierarchical";
  }
  return "unknown algorithm";
}

// Which algorithm an operation on host memory takes, and why.

using namespace collectives;  // NOLINT(google-build-using-namespace)

std::string Communicator::State::explain(const Collective& call) const {
  const std::uint64_t bytes = call.count * width_of(call), all = all_bytes(call.kind, bytes, size());
  const Algorithm taken = chosen(call);
  const std::string what = fmt::format("{} of {} bytes: by {}: ", to_string(call.kind), all, to_string(taken));
  if (call.algorithm != Algorithm::automatic) return what + "the call names it";
  const bool ordered = is_ordered(call);
  const auto others = algorithms_of(call.kind, ordered);
  if (others.size() == 1 && near.groups < 2) return what + "there is no other";
  if (!ordered && ways.fastest(call.kind, all) != Algorithm::automatic) return what + ways.why(call.kind, all);
  std::string costs_text;
  for (const Algorithm each : others)
    costs_text += fmt::format("{}{} {:.1f} us", costs_text.empty() ? "" : ", ", to_string(each),
                              cost_of(call.kind, each, size(), bytes, piece_bytes, costs) / 1e3);
  if (near.groups > 1 && has_algorithm(call.kind, Algorithm::hierarchical, ordered))
    costs_text += fmt::format(", hierarchical {:.1f} us", cost_in_levels(near, bytes, piece_bytes, costs) / 1e3);
  return what +
         fmt::format("by the model of costs {}; {}", costs_text,
                     ordered ? "what is combined in the order of ranks is not measured" : ways.why(call.kind, all));
}

// Operations of one group: neighbours that are small and alike travel as one.

namespace {

constexpr std::uint64_t kTogether = 64U << 10;  // bytes that are worth two copies more

std::uint64_t bytes_of(const Collective& call) {
  return call.count * width_of(call);
}

// Every rank makes the same calls, so every rank comes to the same answer.
bool go_together(const Collective& a, const Collective& b) {
  return a.kind == CollectiveKind::all_reduce && b.kind == CollectiveKind::all_reduce && a.type == b.type &&
         a.reduction == b.reduction && a.reduction != Reduction::custom && a.algorithm == Algorithm::automatic &&
         b.algorithm == Algorithm::automatic && a.reproducible == b.reproducible && a.timeout == b.timeout;
}

}  // namespace

Status Communicator::run_all(std::span<const Collective> group) {
  if (state_ == nullptr) return State::moved();
  for (const Collective& call : group)
    if (Status status = check(call, rank(), size()); !status) return status.with_context(to_string(call.kind));
  std::vector<std::byte> memory;
  for (std::size_t from = 0, to = 0; from < group.size(); from = to) {
    std::uint64_t bytes = bytes_of(group[from]);
    for (to = from + 1; to < group.size() && go_together(group[from], group[to]); ++to) {
      const std::uint64_t next = bytes_of(group[to]);
      if (bytes > kTogether || next > kTogether - bytes) break;
      bytes += next;
    }
    if (to == from + 1) {
      if (Status status = run(group[from]); !status) return status;
      continue;
    }
    memory.resize(bytes);
    std::byte* at = memory.data();
    for (const Collective& call : group.subspan(from, to - from)) {
      if (is_premul(call))
        scale(at, call.input, call.type, call.count, call.factor);
      else if (bytes_of(call) != 0)
        std::memcpy(at, call.input, bytes_of(call));
      at += bytes_of(call);
    }
    Collective all = group[from];
    all.factor = 1;  // each has been multiplied by its own
    all.input = all.output = memory.data();
    all.count = bytes / width_of(all);
    if (Status status = run(all); !status) return status;
    at = memory.data();
    for (const Collective& call : group.subspan(from, to - from)) {
      if (bytes_of(call) != 0) std::memcpy(call.output, at, bytes_of(call));
      at += bytes_of(call);
    }
  }
  return {};
}

}  // namespace fairway

// The words of the public enumerations.
#include "fairway/collectives.h"

#include "collectives/gpu/device/call.h"

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

}  // namespace fairway

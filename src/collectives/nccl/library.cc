#include "collectives/nccl/library.h"

#include <cstddef>
#include <cstdlib>
#include <type_traits>

#include <dlfcn.h>
#include <fmt/format.h>

#include "sys/library_loading.h"

namespace fairway::collectives::nccl {
namespace {

constexpr const char* kVariable = "FAIRWAY_NCCL_LIBRARY";
constexpr const char* kUsualName = "libnccl.so.2";

Status none(const std::string& why) {
  return {ErrorCode::unsupported, "no NCCL: " + why};
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string Library::version_text() const {
  return nccl::version_text(version_);
}

Result<std::shared_ptr<const Library>> Library::open(const std::string& path) {
  std::string named = path;
  if (const char* set = std::getenv(kVariable); named.empty() && set != nullptr) named = set;
  const sys::LibraryLoading loading;
  void* const handle =
      ::dlopen(named.empty() ? kUsualName : named.c_str(), RTLD_NOW | RTLD_LOCAL | (named.empty() ? RTLD_NOLOAD : 0));
  if (handle == nullptr && named.empty())
    return none(fmt::format("nothing in this process has loaded {}: name the file in GpuOptions::nccl_library or {}",
                            kUsualName, kVariable));
  if (handle == nullptr) return none(fmt::format("{} cannot be loaded: {}", named, ::dlerror()));
  std::shared_ptr<Library> library(new Library);
  library->path_ = named.empty() ? "loaded by this process" : named;
  std::string missing;
  const auto find = [&](auto& entry, const char* name) {
    void* const symbol = ::dlsym(handle, name);
    if (symbol == nullptr) missing = name;
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(symbol);
  };
  find(library->table_.ncclGetVersion, "ncclGetVersion");
  if (!missing.empty() || library->table_.ncclGetVersion(&library->version_) != kSuccess)
    return none(fmt::format("{} does not tell its version", library->path_));
  if (library->version_ < kOldest || library->version_ >= kTooNew)
    return none(fmt::format("{} is version {}; one from {} on and before {} is needed", library->path_,
                            library->version_text(), nccl::version_text(kOldest), nccl::version_text(kTooNew)));
#define FAIRWAY_NCCL_FIND(name, arguments) find(library->table_.name, #name);
  FAIRWAY_NCCL_ENTRIES(FAIRWAY_NCCL_FIND)
#undef FAIRWAY_NCCL_FIND
  find(library->error_string_, "ncclGetErrorString");
  if (!missing.empty()) return none(fmt::format("{} has no {}", library->path_, missing));
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::check(int result, const std::string& what) const {
  if (result == kSuccess) return {};
  const char* const words = error_string_(result);
  return {ErrorCode::system_error,
          fmt::format("NCCL: {}: {} ({})", what, words != nullptr ? words : "unknown error", result)};
}

namespace {

constexpr int kNoType = -1;
int nccl_type(DataType type) {
  switch (type) {
    case DataType::i8: return kInt8;
    case DataType::u8: return kUint8;
    case DataType::i32: return kInt32;
    case DataType::u32: return kUint32;
    case DataType::i64: return kInt64;
    case DataType::u64: return kUint64;
    case DataType::f16: return kFloat16;
    case DataType::bf16: return kBfloat16;
    case DataType::f32: return kFloat32;
    case DataType::f64: return kFloat64;
    case DataType::i16:
    case DataType::u16:
    case DataType::f8e4m3:
    case DataType::f8e5m2: break;
  }
  return kNoType;
}

int nccl_reduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::product: return kProduct;
    case Reduction::min: return kMin;
    case Reduction::max: return kMax;
    case Reduction::average: return kAverage;
    case Reduction::sum:
    case Reduction::custom:
    case Reduction::premul_sum: break;
  }
  return kSum;
}

bool is_float(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
}

bool is_good(int result) {
  return result == kSuccess || result == kInProgress;
}

// What goes to a rank, or comes from it, in bytes.
struct Block {
  std::size_t at = 0, bytes = 0;
};
Block block_of(const Blocks& blocks, int peer, std::size_t width) {
  const auto i = static_cast<std::size_t>(peer);
  return {blocks.offsets[i] * width, blocks.counts[i] * width};
}

// A block from, or to, each rank that has one: all_to_all, all_to_allv, gather, scatter.
int blocks(const Library& n, const Collective& call, const Member& as, void* stream) {
  const std::size_t width = size_of(call.type), bytes = call.count * width;
  const auto* const input = static_cast<const std::byte*>(call.input);
  auto* const output = static_cast<std::byte*>(call.output);
  const bool gathers = call.kind == CollectiveKind::gather, scatters = call.kind == CollectiveKind::scatter;
  const bool uneven = call.kind == CollectiveKind::all_to_allv, here = as.rank == call.root;
  int result = n->ncclGroupStart();
  for (int peer = 0; peer < as.size && is_good(result); ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    const Block out = uneven ? block_of(call.send, peer, width) : Block{gathers ? 0 : at, bytes};
    const Block in = uneven ? block_of(call.receive, peer, width) : Block{scatters ? 0 : at, bytes};
    const bool sends = uneven ? out.bytes > 0 : gathers ? peer == call.root : !scatters || here;
    const bool takes = uneven ? in.bytes > 0 : scatters ? peer == call.root : !gathers || here;
    if (peer == as.rank && input + out.at == output + in.at) continue;  // in place
    if (sends) result = n->ncclSend(input + out.at, out.bytes, kUint8, peer, as.comm, stream);
    if (takes && is_good(result)) result = n->ncclRecv(output + in.at, in.bytes, kUint8, peer, as.comm, stream);
  }
  const int ended = n->ncclGroupEnd();
  return is_good(result) ? ended : result;
}

}  // namespace

bool can(const Collective& call) {
  if (call.count == 0 || call.reproducible || call.algorithm != Algorithm::automatic) return false;
  switch (call.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter:
      // Of integers, averages are rounded as it likes.
      return nccl_type(call.type) != kNoType && call.reduction < Reduction::custom &&
             (call.reduction != Reduction::average || is_float(call.type));
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return true;
    case CollectiveKind::all_to_all: return call.input != call.output;
    case CollectiveKind::barrier:
    case CollectiveKind::all_to_allv:  // counts that differ would not be found, and no rank knows how many bytes it is
      break;
  }
  return false;
}

int enqueue(const Library& n, const Collective& call, const Member& as, void* stream) {
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return n->ncclAllReduce(call.input, call.output, call.count, nccl_type(call.type), nccl_reduction(call.reduction),
                              as.comm, stream);
    case CollectiveKind::reduce:
      return n->ncclReduce(call.input, call.output, call.count, nccl_type(call.type), nccl_reduction(call.reduction),
                           call.root, as.comm, stream);
    case CollectiveKind::reduce_scatter:
      return n->ncclReduceScatter(call.input, call.output, call.count, nccl_type(call.type),
                                  nccl_reduction(call.reduction), as.comm, stream);
    case CollectiveKind::all_gather: return n->ncclAllGather(call.input, call.output, bytes, kUint8, as.comm, stream);
    case CollectiveKind::broadcast:
      return n->ncclBroadcast(as.rank == call.root ? call.input : call.output, call.output, bytes, kUint8, call.root,
                              as.comm, stream);
    default: return blocks(n, call, as, stream);
  }
}

int enqueue(const Library& n, std::span<const StreamMessage> group, const Member& as, void* stream) {
  int result = n->ncclGroupStart();
  for (const StreamMessage& message : group)
    if (is_good(result))
      result = message.receives ? n->ncclRecv(message.data, message.size_bytes, kUint8, message.peer, as.comm, stream)
                                : n->ncclSend(message.data, message.size_bytes, kUint8, message.peer, as.comm, stream);
  const int ended = n->ncclGroupEnd();
  return is_good(result) ? ended : result;
}

}  // namespace fairway::collectives::nccl

#include "collectives/gpu/group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "collectives/gpu/device/call.h"
#include "collectives/host/lanes.h"
#include "collectives/job/progress.h"
#include "collectives/state.h"
#include "sys/cuda.h"
#include "sys/cuda_memory.h"
#include "sys/nvml.h"

namespace fairway::collectives {
namespace {

using sys::CurrentContext;
using sys::cuda::Context;
using sys::cuda::kCaptureActive;
using sys::cuda::kHostMapped;
using sys::cuda::kHostPortable;
using sys::cuda::kStreamNonBlocking;
using sys::cuda::Stream;

// In the order of DataType, behind the one that moves bytes.
constexpr std::array<const char*, 13> kKernelNames{"move", "i8",  "u8",  "i16",  "u16", "i32", "u32",
                                                   "i64",  "u64", "f16", "bf16", "f32", "f64"};
constexpr std::uint64_t kOfMeeting = 0x9E3779B97F4A7C15;  // in the digest of a meeting; any that changes both halves

gpu::Combine combine_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::product: return gpu::Combine::product;
    case Reduction::min: return gpu::Combine::min;
    case Reduction::max: return gpu::Combine::max;
    case Reduction::average: return gpu::Combine::average;
    case Reduction::sum:
    case Reduction::custom:
    case Reduction::premul_sum: break;
  }
  return gpu::Combine::sum;
}

}  // namespace

GpuGroup::GpuGroup(Engine& engine, std::shared_ptr<const sys::CudaDriver> driver, int device, int rank, int size,
                   bool messages, bool in_turn, std::shared_ptr<gpu::Told> told)
    : engine_(engine),
      driver_(std::move(driver)),
      gpu_(device),
      rank_(rank),
      size_(size),
      layout_(gpu::layout_of(size, messages)),
      in_turn_(in_turn),
      places_(driver_, gpu::Places(), "a communicator serves"),
      graphs_(driver_),
      told_of_file_(std::move(told)),
      mappings_(static_cast<std::size_t>(size)),
      closing_(std::make_unique<sys::CudaClosing>(driver_)) {}

Result<std::unique_ptr<GpuGroup>> GpuGroup::open(Engine& engine, int device, int rank, int size,
                                                 const std::string& name, bool messages, bool in_turn,
                                                 std::shared_ptr<gpu::Told> told) {
  if (size > static_cast<int>(gpu::kMostRanks))
    return Status(ErrorCode::unsupported,
                  fmt::format("{} ranks: at most {} of one host use each other's GPUs", size, gpu::kMostRanks));
  if (gpu::group_kernels() == nullptr)
    return Status(ErrorCode::unsupported, "this build has no kernels for collectives: build it with nvcc");
  auto driver = sys::CudaDriver::open();
  if (!driver) return driver.status();
  if (device < 0 || device >= (*driver)->devices())
    return Status(ErrorCode::invalid_argument,
                  fmt::format("this process has no GPU {}: it sees {}", device, (*driver)->devices()));
  std::unique_ptr<GpuGroup> group(
      new GpuGroup(engine, std::move(*driver), device, rank, size, messages, in_turn, std::move(told)));
  if (Status status = group->prepare(name); !status) return status;
  return group;
}

Status GpuGroup::prepare(const std::string& name) {
  const sys::CudaDriver& cu = *driver_;
  Context context = nullptr;
  if (Status status = cu.check(cu->cuDevicePrimaryCtxRetain(&context, gpu_), "the GPU's context"); !status)
    return status;
  context_ = context;
  const CurrentContext current(cu, context_);
  void* host = nullptr;
  Status status = cu.check(cu->cuMemHostAlloc(&host, sizeof(HostWords), kHostPortable | kHostMapped), "pinning memory");
  if (!status) return status;
  std::memset(host, 0, sizeof(HostWords));
  host_ = static_cast<HostWords*>(host);
  if (told_of_file_ && cu->cuMemHostRegister_v2(told_of_file_.get(), ProgressFile::kToldBytes,
                                                kHostPortable | kHostMapped) != sys::cuda::kSuccess)
    told_of_file_.reset();
  told_ = told_of_file_ ? told_of_file_.get() : host_->told;
  status = cu.check(cu->cuMemAlloc_v2(&scratch_, layout_.bytes), "allocating scratch memory");
  if (status) status = clear_scratch();
  if (status)
    status =
        cu.check(sys::load_once(cu, context_, gpu::group_kernels(), &module_), "loading the kernels for collectives");
  if (!status) return status;
  auto region = engine_.register_memory(reinterpret_cast<void*>(scratch_), layout_.bytes, Access::write);
  if (!region) return region.status().with_context("registering scratch memory");
  region_ = *region;
  return engine_.publish(name, region_);
}

// On a stream of its own: nothing of the program's is waited for.
Status GpuGroup::clear_scratch() {
  const sys::CudaDriver& cu = *driver_;
  Stream own = nullptr;
  Status status = cu.check(cu->cuStreamCreateWithPriority(&own, kStreamNonBlocking, 0), "making a stream");
  if (!status) return status;
  status = cu.check(cu->cuMemsetD8Async(scratch_, 0, layout_.bytes, own), "clearing scratch memory");
  if (status) status = cu.check(cu->cuStreamSynchronize(own), "clearing scratch memory");
  cu->cuStreamDestroy_v2(own);
  return status;
}

Status GpuGroup::load(sys::cuda::Module from, const std::vector<std::string>& names,
                      std::vector<sys::cuda::Function>& kernels) const {
  const sys::CudaDriver& cu = *driver_;
  const CurrentContext current(cu, context_);
  Stream stream = nullptr;
  Status status = cu.check(cu->cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0), "making a stream");
  gpu::MessagesCall nothing = {};  // as long as any argument
  void* arguments[] = {&nothing};
  for (const std::string& name : names) {
    sys::cuda::Function kernel = nullptr;
    if (status) status = cu.check(cu->cuModuleGetFunction(&kernel, from, name.c_str()), "finding a kernel");
    if (status)
      status =
          cu.check(cu->cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr), "starting a kernel");
    kernels.push_back(kernel);
  }
  if (stream == nullptr) return status;
  if (status) status = cu.check(cu->cuStreamSynchronize(stream), "running the kernels for collectives");
  cu->cuStreamDestroy_v2(stream);
  return status;
}

Status GpuGroup::get_ready(bool by_lines) {
  by_lines_ = by_lines;
  const char* const family = !by_lines                                   ? "units"
                             : size_ == 2                                ? "pair"
                             : size_ <= static_cast<int>(gpu::kFewRanks) ? "few"
                                                                         : "many";
  std::vector<std::string> names;
  for (const char* const of : {family, "read"})
    for (const char* const kind : kKernelNames) names.push_back(fmt::format("fairway_{}_{}", of, kind));
  if (by_lines && size_ > 2) names.push_back(fmt::format("fairway_{}_pass", family));
  std::vector<sys::cuda::Function> found;
  if (Status status = load(module_, names, found); !status) return status;
  std::copy_n(found.begin(), kKernels, kernels_.begin());
  std::copy_n(found.begin() + kKernels, kKernels, readers_.begin());
  if (found.size() > 2 * kKernels) passes_on_ = found.back();
  const sys::CudaDriver& cu = *driver_;
  int compiled_for =
      0;  // below 9.0 kernels cannot wait (collectives/gpu/device/kernels.cu); captures have it from 12.3 on
  if (cu.version() >= 12030 && cu->cuLaunchKernelEx != nullptr && cu->cuFuncGetAttribute != nullptr)
    wait_themselves_ =
        cu->cuFuncGetAttribute(&compiled_for, sys::cuda::kPtxVersion, kernels_[0]) == sys::cuda::kSuccess &&
        compiled_for >= 90;
  return {};
}

std::string GpuGroup::bus_id() const {
  std::array<char, 32> id = {};
  return (*driver_)->cuDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), gpu_) == sys::cuda::kSuccess
             ? id.data()
             : "";
}

bool GpuGroup::keeps_lines(const std::string& bus_id) const {
  const sys::CudaDriver& cu = *driver_;
  for (int other = 0; other < cu.devices(); ++other) {
    std::array<char, 32> id = {};
    if (cu->cuDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), other) != sys::cuda::kSuccess ||
        bus_id != id.data())
      continue;
    if (other == gpu_) return true;
    int native = 0;  // without NVML: of all links between GPUs so far, NVLink alone has atomics
    return sys::over_nvlink(this->bus_id(), bus_id)
        .value_or(cu->cuDeviceGetP2PAttribute(&native, sys::cuda::kPeerAtomics, gpu_, other) == sys::cuda::kSuccess &&
                  native != 0);
  }
  return sys::over_nvlink(this->bus_id(), bus_id).value_or(false);  // hidden from this process
}

Status GpuGroup::meet(const std::vector<Member>& members, const std::string& name, Time deadline) {
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    const auto remote = engine_.lookup(members[rank].peer, name, until(deadline));
    const auto mapping = remote ? engine_.map(*remote, gpu_, until(deadline)) : Result<Mapping>(remote.status());
    if (!mapping) return mapping.status().with_context(members[rank].name);
    mappings_[rank] = *mapping;
    if (mapping->size_bytes < layout_.bytes)
      return {ErrorCode::invalid_argument,
              fmt::format("{} has less scratch memory than this rank: GpuOptions::messages is the same on every rank",
                          members[rank].name)};
  }
  return {};
}

Result<gpu::Source> GpuGroup::source_of(void* stream) const {
  if (stream == nullptr)
    return Status(ErrorCode::invalid_argument, "stream: the default stream cannot be used: create one");
  const sys::CudaDriver& cu = *driver_;
  const auto handle = static_cast<Stream>(stream);
  Context context = nullptr;
  if (Status status = cu.check(cu->cuStreamGetCtx(handle, &context), "the stream's context"); !status) return status;
  if (context != context_)
    return Status(
        ErrorCode::invalid_argument,
        fmt::format("stream: it is not of GPU {}, which this rank uses, or not of its primary context", gpu_));
  gpu::Source source;
  unsigned long long number = 0, capture = 0;
  int capturing = 0;
  sys::cuda::Graph graph = nullptr;
  const CurrentContext current(cu, context_);
  if (cu->cuStreamGetId == nullptr || cu->cuStreamGetCaptureInfo_v2 == nullptr)
    return Status(ErrorCode::unsupported, "this driver does not tell streams apart: a newer one is needed");
  Status status = cu.check(cu->cuStreamGetCaptureInfo_v2(handle, &capturing, &capture, &graph, nullptr, nullptr),
                           "whether the stream captures");
  if (!status) return status;
  if (capturing > kCaptureActive) return Status(ErrorCode::invalid_argument, "stream: its capture has failed");
  if (capturing == kCaptureActive) {  // the driver gives no number then; the handle stays as long as the capture
    source.stream = reinterpret_cast<std::uintptr_t>(stream);
    graphs_.add(capture, graph);
    source.capture = in_turn_ ? gpu::Source::kAnyCapture : capture;
    return source;
  }
  if (status = cu.check(cu->cuStreamGetId(handle, &number), "the stream's number"); !status) return status;
  source.stream = number;
  return source;
}

Status GpuGroup::check_memory(const void* address, std::uint64_t bytes, const char* name) const {
  const std::uint64_t reached = sys::reached_by_kernels(*driver_, address, bytes);
  if (reached >= bytes) return {};
  return {ErrorCode::invalid_argument,
          reached == 0 ? fmt::format("{}: it is not memory that a GPU can access", name)
                       : fmt::format("{}: a GPU can access its first {} bytes alone", name, reached)};
}

Result<bool> GpuGroup::lacks_place(void* stream) const {
  if (!places_.are_taken()) return false;
  const auto source = source_of(stream);
  if (!source) return source.status();
  return places_.lacks(*source);
}

Result<gpu::Call> GpuGroup::call_of(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                                    void* stream) {
  const auto source = source_of(stream);
  if (!source) return source.status();
  const CurrentContext current(*driver_, context_);
  const auto place = places_.place_of(*source, static_cast<Stream>(stream));
  if (!place) return place.status();
  return call_at(place->at, call, digest, number, timeout);
}

Status GpuGroup::ends_at(void* stream) {
  if (!places_.need_ends()) return {};
  const auto source = source_of(stream);
  if (!source) return source.status();
  const CurrentContext current(*driver_, context_);
  return places_.ends_at(*source, static_cast<Stream>(stream));
}

gpu::Call GpuGroup::call_at(std::uint32_t place, const Collective& call, std::uint64_t digest, std::uint64_t number,
                            Timeout timeout) const {
  gpu::Call made = {};
  made.work = gpu::work_of(call.kind);
  made.place = place;
  for (std::size_t rank = 0; rank < mappings_.size(); ++rank) {
    const bool own = static_cast<int>(rank) == rank_;
    made.scratch[rank] =
        own ? reinterpret_cast<unsigned char*>(scratch_) : reinterpret_cast<unsigned char*>(mappings_[rank].address);
    made.ended[rank] = mappings_[rank].ended;
  }
  made.input = static_cast<const unsigned char*>(call.input);
  made.output = static_cast<unsigned char*>(call.output);
  made.count = gpu::combines(made.work) ? call.count : call.count * width_of(call);
  made.digest = digest;
  constexpr std::int64_t kMostUs = std::int64_t{1} << 50;
  made.nanoseconds = static_cast<std::uint64_t>(std::clamp<std::int64_t>(timeout.count(), 0, kMostUs)) * 1000;
  made.number = number;
  made.report = &host_->report;
  made.stop = &host_->stop;
  made.told = told_ + place;
  made.place_at = gpu::Layout::place_at(made.place);
  made.rank = static_cast<std::uint32_t>(rank_);
  made.size = static_cast<std::uint32_t>(size_);
  made.root = static_cast<std::uint32_t>(call.root);
  made.kind = static_cast<std::uint32_t>(call.kind);
  made.combine = combine_of(call.reduction);
  return made;
}

Status GpuGroup::launch(const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                        void* stream, Part part) {
  auto filled = call_of(call, digest, number, timeout, stream);
  if (!filled) return filled.status();
  gpu::Call& made = *filled;
  if (part != Part::whole) made.work = part == Part::exit ? gpu::Work::mark : gpu::Work::nothing;
  if (part == Part::entry || part == Part::exit) made.marks = &host_->marks[made.place];
  if (part == Part::meeting) made.digest ^= kOfMeeting;  // a rank that does not meet has called something else
  const std::uint64_t block_bytes = part == Part::whole ? call.count * width_of(call) : 0;
  const gpu::Route route = gpu::route_of(layout_, made.place, made.work, block_bytes, call.algorithm, by_lines_);
  made.units = {layout_.own_of(made.place), layout_.unit_count};
  made.area = layout_.area;
  made.lines = route.lines;
  made.lines.at = made.units.at;
  made.area_lines = route.area_lines;
  if (part == Part::exit) made.lines.rounds = made.area_lines.rounds = 0;  // it exchanges nothing
  made.blocks = route.blocks;
  made.wants_area = route.wants_area ? 1 : 0;
  made.way = route.way;
  made.part_bytes = route.part_bytes;
  sys::cuda::Function kernel = kernels_[gpu::combines(made.work) ? static_cast<std::size_t>(call.type) + 1 : 0];
  if (made.work == gpu::Work::from_root && route.way == gpu::Way::two_shot) kernel = passes_on_;
  return start(kernel, route.blocks, route.threads, stream, &made);
}

Result<gpu::ReadCall> GpuGroup::reading_call(const Collective& call, std::uint64_t digest, std::uint64_t number,
                                             Timeout timeout, void* stream) {
  const auto filled = call_of(call, digest, number, timeout, stream);
  if (!filled) return filled.status();
  gpu::ReadCall made = {};
  made.call = *filled;
  made.phases_at = layout_.phases_of(filled->place);
  return made;
}

Status GpuGroup::start_reader(gpu::ReadCall& made, DataType type, bool combines, bool early, void* stream) {
  return start(readers_[combines ? static_cast<std::size_t>(type) + 1 : 0], made.call.blocks,
               combines ? gpu::kReadThreads : gpu::kRowLanes, stream, &made, early);
}

// Kernels that wait themselves for the end of what is ahead of them may be started before, which takes less time
// ("CUDA C++ Programming Guide", programmatic dependent launch).
Status GpuGroup::start(sys::cuda::Function kernel, unsigned blocks, unsigned threads, void* stream, void* argument,
                       bool early) {
  const sys::CudaDriver& cu = *driver_;
  const CurrentContext current(cu, context_);
  const auto on = static_cast<Stream>(stream);
  void* arguments[] = {argument};
  if (!wait_themselves_ || !early)
    return cu.check(cu->cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, on, arguments, nullptr),
                    "starting a kernel");
  sys::cuda::LaunchAttribute begins_early = {};
  begins_early.id = sys::cuda::kEarlyLaunch;
  begins_early.value = 1;
  const sys::cuda::LaunchConfig config = {blocks, 1, 1, threads, 1, 1, 0, on, &begins_early, 1};
  return cu.check(cu->cuLaunchKernelEx(&config, kernel, arguments, nullptr), "starting a kernel");
}

GpuGroup::Watched GpuGroup::watched() const {
  Watched out{&host_->report, &host_->stop, host_->marks};
  for (std::size_t rank = 0; rank < mappings_.size(); ++rank) {
    const bool own = static_cast<int>(rank) == rank_;
    out.ended[rank] = mappings_[rank].ended;
    out.scratch[rank] = own ? scratch_ : reinterpret_cast<sys::cuda::Address>(mappings_[rank].address);
  }
  return out;
}

std::optional<gpu::Report> GpuGroup::failure() const {
  if (std::atomic_ref(host_->report.state).load(std::memory_order_acquire) == 0) return {};
  return host_->report;
}

}  // namespace fairway::collectives

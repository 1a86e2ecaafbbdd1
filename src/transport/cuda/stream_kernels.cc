#include "transport/cuda/stream_kernels.h"

#include <algorithm>

#include "sys/cuda.h"

namespace fairway::transport::cuda {
namespace {

using namespace sys::cuda;

// Measured by bench/nccl/device on H200s (docs/cuda.md): up to this size one block is fastest; above it several blocks,
// and a second kernel for the signal.
constexpr std::uint64_t kOneBlock = 32 * 1024;
constexpr unsigned kOneBlocksThreads = 1024, kThreads = 512, kBytesPerThread = 32, kMostBlocks = 128;

constexpr unsigned kNoSignal = 0, kSet = 1, kAdd = 2;  // as signals.cu has them

unsigned threads_for(std::uint64_t length) {
  const std::uint64_t wanted = (length + 15) / 16;
  return static_cast<unsigned>(std::clamp<std::uint64_t>((wanted + 31) / 32 * 32, 32, kOneBlocksThreads));
}

}  // namespace

void StreamKernels::load(const CudaDriver& driver, Context context, Stream beside, std::byte* zeros) {
  driver_ = &driver;
  const char* code = signal_kernels();
  if (code == nullptr) {
    missing_ = {ErrorCode::unsupported, "this build has no kernels for streams: build it with nvcc"};
    return;
  }
  Module module = nullptr;
  const auto find = [&](Function& kernel, const char* name) {
    return driver.check(driver->cuModuleGetFunction(&kernel, module, name), "finding a kernel");
  };
  Status status = driver.check(sys::load_once(driver, context, code, &module), "loading the kernels for streams");
  if (status) status = find(put_, "fairway_put");
  if (status) status = find(put_part_, "fairway_put_part");
  if (status) status = find(wait_, "fairway_wait");
  if (!status) {
    missing_ = {ErrorCode::unsupported, status.message()};
    return;
  }
  missing_ = {};
  const void* nowhere = nullptr;
  std::uint64_t nothing = 0;
  void* part[] = {&nowhere, &nowhere, &nothing};
  StreamWait over;
  over.word = reinterpret_cast<const std::uint64_t*>(zeros);
  over.value = 0;
  over.outcome = reinterpret_cast<std::uint32_t*>(zeros + sizeof *over.word);
  status = launch_put(nullptr, nullptr, 0, {}, beside);
  if (status) status = launch(put_part_, 1, 32, beside, part);
  if (status) status = wait(over, nullptr, beside);
  if (!status) missing_ = {ErrorCode::unsupported, status.message()};
}

Status StreamKernels::launch(Function kernel, unsigned blocks, unsigned threads, Stream stream,
                             void** arguments) const {
  return driver_->check((*driver_)->cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
                        "starting a kernel for a stream");
}

Status StreamKernels::launch_put(std::byte* to, const void* from, std::uint64_t length, const GpuAccess::Put& signal,
                                 Stream stream) const {
  std::uint64_t* word = signal.signal;
  std::uint64_t value = signal.value;
  unsigned how = word == nullptr ? kNoSignal : signal.add ? kAdd : kSet;
  void* arguments[] = {&to, &from, &length, &word, &value, &how};
  return launch(put_, 1, threads_for(length), stream, arguments);
}

Status StreamKernels::put(const GpuAccess::Put& put, Stream stream) const {
  if (!missing_) return missing_;
  const bool by_engine = put.by == PutBy::copy_engine;  // in a graph a kernel is always faster
  if (!by_engine && put.length <= kOneBlock) return launch_put(put.to, put.from, put.length, put, stream);
  Status status;
  if (by_engine && put.length > 0) {
    status = driver_->check((*driver_)->cuMemcpyAsync(reinterpret_cast<Address>(put.to),
                                                      reinterpret_cast<Address>(put.from), put.length, stream),
                            "a copy for a stream");
  } else if (put.length > 0) {
    std::byte* to = put.to;
    const void* from = put.from;
    std::uint64_t length = put.length;
    void* arguments[] = {&to, &from, &length};
    const std::uint64_t blocks = (length + kThreads * kBytesPerThread - 1) / (kThreads * kBytesPerThread);
    const unsigned most = put.blocks == 0 ? kMostBlocks : put.blocks;
    status =
        launch(put_part_, static_cast<unsigned>(std::min<std::uint64_t>(blocks, most)), kThreads, stream, arguments);
  }
  if (status && put.signal_by_stream) {
    const CudaDriver& cu = *driver_;
    if (cu->cuStreamWriteValue64_v2 == nullptr)
      return {ErrorCode::unsupported, "StreamPut::signal_by_stream: this driver's streams store no words of 8 bytes"};
    return cu.check(cu->cuStreamWriteValue64_v2(stream, reinterpret_cast<Address>(put.signal), put.value, 0),
                    "a signal of a stream");
  }
  // The signal's kernel starts after the copy in the same stream is complete and visible.
  return status && put.signal != nullptr ? launch_put(nullptr, nullptr, 0, put, stream) : status;
}

Status StreamKernels::wait(const StreamWait& wait, const std::uint32_t* ended, Stream stream) const {
  if (!missing_) return missing_;
  const std::uint64_t* word = wait.word;
  std::uint64_t* count = wait.count;
  std::uint64_t value = wait.value;
  constexpr std::int64_t kMostUs = std::int64_t{1} << 50;  // fits as nanoseconds too
  std::uint64_t nanoseconds =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(wait.timeout.count(), 0, kMostUs)) * 1000;
  auto past_deadline = static_cast<unsigned>(ErrorCode::deadline_exceeded);
  std::uint32_t* outcome = wait.outcome;
  void* arguments[] = {&word, &count, &value, &nanoseconds, &ended, &past_deadline, &outcome};
  return launch(wait_, 1, 1, stream, arguments);
}

}  // namespace fairway::transport::cuda

#include "sys/cuda_memory.h"
#include "transport/command.h"
#include "transport/cuda/mover.h"

// Views for the user's kernels, and work for the user's streams.
namespace fairway::transport::cuda {
host::Mover::Readiness CudaMover::view(RegionId own, Mover::Imported* imported, int device, View& out, Status& why) {
  if (device < 0 || device >= devices_->count()) {
    why = {ErrorCode::invalid_argument,
           "this process has no GPU " + std::to_string(device) + ": it sees " + std::to_string(devices_->count())};
    return Readiness::refused;
  }
  const auto memory = imported == nullptr ? own_memory(own, why) : held(*static_cast<ImportedAllocation*>(imported));
  if (memory == nullptr) return Readiness::refused;
  const Handle& handle = memory->handle();
  const auto other = devices_->find(handle.device);
  if (memory->ours() && handle.by == Export::none && other != device) {
    why = {ErrorCode::unsupported, "GPU " + std::to_string(device) + " cannot access it: " + handle.why};
    return Readiness::refused;
  }
  std::string words;
  Readiness ready = queues_of(device, words);
  if (ready == Readiness::ready) ready = view_of(*memory, device, words);
  if (ready == Readiness::refused) why = {ErrorCode::unsupported, words};
  if (ready != Readiness::ready) return ready;
  auto word = end_words_->take();
  if (word == nullptr) {
    why = {ErrorCode::resource_exhausted, "the limit of mapped regions in this process is reached: unmap some"};
    return Readiness::refused;
  }
  out.base = memory->view(device).base;
  out.size = handle.size;
  out.ended = word.get();
  out.atomics = memory->view(device).atomics;
  out.keeps = std::make_shared<std::pair<std::shared_ptr<ImportedAllocation>, std::shared_ptr<std::uint32_t>>>(
      memory, std::move(word));
  return Readiness::ready;
}

std::shared_ptr<ImportedAllocation> CudaMover::own_memory(RegionId region, Status& why) {
  auto& memory = own_[handle_of(region)];
  if (memory) return memory;
  const std::vector<std::byte> handle = exporter_.handle(region);
  if (handle.empty()) {
    own_.erase(handle_of(region));
    why = {ErrorCode::unsupported, "the region is host memory: if it is pinned, kernels use its own address"};
    return nullptr;
  }
  return memory = std::static_pointer_cast<ImportedAllocation>(import(handle));
}

Status CudaMover::for_stream(void* stream, const StreamCall& call) {
  if (stream == nullptr)
    return {ErrorCode::invalid_argument, "the default stream cannot put or wait for a signal: create a stream"};
  const CudaDriver& cu = devices_->driver();
  const auto handle = static_cast<sys::cuda::Stream>(stream);
  sys::cuda::Context context = nullptr;
  if (Status status = cu.check(cu->cuStreamGetCtx(handle, &context), "the stream's context"); !status) return status;
  for (int device = 0; device < devices_->count(); ++device) {
    const Device& ready = ready_[static_cast<std::size_t>(device)];
    if (ready.state.load(std::memory_order_acquire) != ImportedAllocation::State::ready) continue;
    if (const auto own = devices_->use(device); !own || *own != context) continue;
    const Current current(cu, context);
    return call(device, ready.queues->for_streams(), handle);
  }
  return {ErrorCode::invalid_argument,
          "the stream's GPU has no memory registered or mapped in this engine, or its context is not the primary one"};
}

Status CudaMover::put(const GpuAccess::Put& put, void* stream) {
  return for_stream(stream, [&](int device, const StreamKernels& kernels, sys::cuda::Stream on) {
    if (device != put.gpu)
      return Status(ErrorCode::invalid_argument, "the stream belongs to GPU " + std::to_string(device) +
                                                     ", the mapping to GPU " + std::to_string(put.gpu));
    // A kernel that read other memory would end the program's context, but where GPUs read the host's pages.
    if (put.by != PutBy::copy_engine &&
        sys::reached_by_kernels(devices_->driver(), put.from, put.length) < put.length &&
        !devices_->reads_pages(device))
      return Status(ErrorCode::invalid_argument,
                    "from: a GPU cannot access all of it: pin host memory, or use PutBy::copy_engine");
    return kernels.put(put, on);
  });
}

Status CudaMover::wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) {
  return for_stream(
      stream, [&](int, const StreamKernels& kernels, sys::cuda::Stream on) { return kernels.wait(wait, ended, on); });
}

}  // namespace fairway::transport::cuda

#include "transport/cuda/mover.h"
#include "transport/handles.h"

// What kernels and streams of the user's reach by themselves.
namespace fairway::transport::cuda {
host::Mover::Readiness CudaMover::view(RegionId own, Mover::Foreign* foreign, int device, View& out, Status& why) {
  if (device < 0 || device >= devices_->count()) {
    why = {ErrorCode::invalid_argument, "there is no GPU " + std::to_string(device) + " in this process, which sees " +
                                            std::to_string(devices_->count())};
    return Readiness::refused;
  }
  const auto memory = foreign == nullptr ? own_memory(own, why) : held(*static_cast<cuda::Foreign*>(foreign));
  if (memory == nullptr) return Readiness::refused;
  const Handle& handle = memory->handle();
  const auto other = devices_->find(handle.device);
  if (memory->ours() && handle.way == Way::none && other != device) {
    why = {ErrorCode::unsupported, "GPU " + std::to_string(device) + " is not let to it: " + handle.why};
    return Readiness::refused;
  }
  std::string words;
  Readiness ready = queues_of(device, words);
  if (ready == Readiness::ready) ready = view_of(*memory, device, words);
  if (ready == Readiness::refused) why = {ErrorCode::unsupported, words};
  if (ready != Readiness::ready) return ready;
  auto word = end_words_->take();
  if (word == nullptr) {
    why = {ErrorCode::resource_exhausted, "no pinned word is left for one more mapping: unmap some"};
    return Readiness::refused;
  }
  out.base = memory->view(device).base;
  out.size = handle.size;
  out.ended = word.get();
  out.atomics = other && devices_->atomics(device, *other);
  out.keeps = std::make_shared<std::pair<std::shared_ptr<cuda::Foreign>, std::shared_ptr<std::uint32_t>>>(
      memory, std::move(word));
  return Readiness::ready;
}

std::shared_ptr<Foreign> CudaMover::own_memory(RegionId region, Status& why) {
  auto& memory = own_[handle_of(region)];
  if (memory) return memory;
  const std::vector<std::byte> handle = lender_.handle(region);
  if (handle.empty()) {
    own_.erase(handle_of(region));
    why = {ErrorCode::unsupported,
           "the region is host memory: kernels reach it by its own address, where it is pinned"};
    return nullptr;
  }
  return memory = std::static_pointer_cast<cuda::Foreign>(open(handle));
}

Status CudaMover::for_stream(void* stream, const StreamCall& call) {
  if (stream == nullptr)
    return {ErrorCode::invalid_argument,
            "the default stream puts nothing and waits for no signal: give one of your own"};
  const CudaDriver& cu = devices_->driver();
  const auto handle = static_cast<sys::cuda::Stream>(stream);
  sys::cuda::Context context = nullptr;
  if (Status status = cu.check(cu->cuStreamGetCtx(handle, &context), "the stream's context"); !status) return status;
  for (int device = 0; device < devices_->count(); ++device) {
    const Device& ready = ready_[static_cast<std::size_t>(device)];
    if (ready.state.load(std::memory_order_acquire) != cuda::Foreign::State::ready) continue;
    if (const auto own = devices_->use(device); !own || *own != context) continue;
    const Current current(cu, context);
    return call(device, ready.queues->for_streams(), handle);
  }
  return {ErrorCode::invalid_argument,
          "no memory of the stream's GPU is registered or mapped here, or its context is not the primary one"};
}

Status CudaMover::put(const GpuAccess::Put& put, void* stream) {
  return for_stream(stream, [&](int device, const StreamKernels& kernels, sys::cuda::Stream on) {
    if (device != put.gpu)
      return Status(ErrorCode::invalid_argument, "the stream is of GPU " + std::to_string(device) +
                                                     ", the mapping for GPU " + std::to_string(put.gpu));
    return kernels.put(put, on);
  });
}

Status CudaMover::wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) {
  return for_stream(
      stream, [&](int, const StreamKernels& kernels, sys::cuda::Stream on) { return kernels.wait(wait, ended, on); });
}

}  // namespace fairway::transport::cuda

#include "transport/cuda/foreign.h"

namespace fairway::transport::cuda {

using namespace sys::cuda;

Foreign::Foreign(std::shared_ptr<Devices> devices, Handle handle, bool ours)
    : devices_(std::move(devices)),
      handle_(std::move(handle)),
      ours_(ours),
      views_(static_cast<std::size_t>(devices_->count())) {}

Foreign::~Foreign() {
  const CudaDriver& cu = devices_->driver();
  for (int device = 0; device < devices_->count(); ++device) {
    if (views_[static_cast<std::size_t>(device)].state != State::ready || ours_ || handle_.way != Way::ipc) continue;
    if (const auto context = devices_->use(device)) {
      const Current current(cu, *context);
      cu->cuIpcCloseMemHandle(reinterpret_cast<Address>(views_[static_cast<std::size_t>(device)].base));
    }
  }
  if (mapped_ != 0) {
    cu->cuMemUnmap(mapped_, handle_.size);
    cu->cuMemAddressFree(mapped_, handle_.size);
  }
  if (has_allocation_) cu->cuMemRelease(allocation_);
}

void Foreign::give(sys::Fd file, const std::string& why_none) {
  given_ = true;
  file_ = std::move(file);
  no_file_ = why_none;
}

void Foreign::open(int device) {
  View& view = this->view(device);
  std::byte* base = nullptr;
  if (const Status status = map(device, base); !status) {
    view.why = status.message();
    view.state.store(State::refused, std::memory_order_release);
    return;
  }
  view.base = base;
  view.state.store(State::ready, std::memory_order_release);
}

Status Foreign::map(int device, std::byte*& base) {
  const CudaDriver& cu = devices_->driver();
  const auto context = devices_->use(device);
  if (!context) return context.status();
  const auto other = devices_->find(handle_.device);
  if (ours_) {
    base = reinterpret_cast<std::byte*>(handle_.base);
    return other ? devices_->reach(device, *other) : Status(ErrorCode::not_found, "no such device");
  }
  if (handle_.way == Way::none) return {ErrorCode::unsupported, "its owner cannot lend it: " + handle_.why};
  const std::string hidden =
      other ? "" : "; its GPU is not one that this process sees (CUDA_VISIBLE_DEVICES, MIG or another container)";
  if (handle_.way == Way::file) {
    const Status status = map_file(device, base);
    return status ? status : Status(status.code(), status.message() + hidden);
  }
  const Current current(cu, *context);
  Address address = 0;
  const Status status =
      cu.check(cu->cuIpcOpenMemHandle_v2(&address, handle_.ipc, kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
  base = reinterpret_cast<std::byte*>(address);
  return status ? status : Status(status.code(), status.message() + hidden);
}

// One place for all devices; each gets access on its own.
Status Foreign::map_file(int device, std::byte*& base) {
  const CudaDriver& cu = devices_->driver();
  if (!file_ && !has_allocation_) return {ErrorCode::unsupported, "its owner sent no descriptor: " + no_file_};
  const auto context = devices_->use(device);
  if (!context) return context.status();
  const Current current(cu, *context);
  if (!has_allocation_) {
    const Status status =
        cu.check(cu->cuMemImportFromShareableHandle(
                     &allocation_, reinterpret_cast<void*>(static_cast<std::intptr_t>(file_.get())), kHandleFile),
                 "cuMemImportFromShareableHandle");
    if (!status) return status;
    has_allocation_ = true;
    file_ = {};
  }
  if (mapped_ == 0) {
    Address address = 0;
    Status status =
        cu.check(cu->cuMemAddressReserve(&address, handle_.size, 0, 0, 0), "reserving addresses for GPU memory");
    if (!status) return status;
    status = cu.check(cu->cuMemMap(address, handle_.size, 0, allocation_, 0), "mapping GPU memory");
    if (!status) {
      cu->cuMemAddressFree(address, handle_.size);
      return status;
    }
    mapped_ = address;
  }
  const AccessDescription access{{kLocationDevice, device}, kReadWrite};
  base = reinterpret_cast<std::byte*>(mapped_);
  return cu.check(cu->cuMemSetAccess(mapped_, handle_.size, &access, 1),
                  "access of GPU " + std::to_string(device) + " to it");
}

std::string Foreign::text() const {
  const auto other = devices_->find(handle_.device);
  const std::string where = other ? "GPU " + std::to_string(*other) : "a GPU that this process does not see";
  for (const View& view : views_)
    if (view.state.load(std::memory_order_acquire) == State::refused) return "not reached: " + view.why;
  if (ours_) return "peer access within the process, to " + where;
  switch (handle_.way) {
    case Way::ipc: return "CUDA IPC, to " + where + "; not within one process";
    case Way::file:
      return "a mapped descriptor of virtual memory management, to " + where + "; no IPC handle for such memory";
    case Way::none: break;
  }
  return "not reached: its owner cannot lend it: " + handle_.why;
}

}  // namespace fairway::transport::cuda

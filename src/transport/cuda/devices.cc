#include "transport/cuda/devices.h"

namespace fairway::transport::cuda {

Devices::Devices(std::shared_ptr<const CudaDriver> driver) : driver_(std::move(driver)) {
  const CudaDriver& cu = *driver_;
  for (int i = 0; i < cu.devices(); ++i) {
    One one;
    std::array<char, 256> name{};
    if (cu->cuDeviceGet(&one.handle, i) != 0 || cu->cuDeviceGetUuid_v2(&one.uuid, one.handle) != 0) one.failed = true;
    if (cu->cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, one.handle) == 0) one.name = name.data();
    std::array<char, 32> bus_id{};
    if (cu->cuDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), one.handle) == 0)
      one.bus_id = bus_id.data();
    all_.push_back(std::move(one));
  }
}

Devices::~Devices() {
  for (const One& one : all_)
    if (one.context != nullptr) (*driver_)->cuDevicePrimaryCtxRelease_v2(one.handle);
}

std::optional<int> Devices::find(const sys::cuda::Uuid& uuid) const {
  for (int i = 0; i < count(); ++i)
    if (this->uuid(i) == uuid) return i;
  return {};
}

Result<sys::cuda::Context> Devices::use(int device) {
  if (device < 0 || device >= count()) return Status(ErrorCode::not_found, "no such CUDA device");
  One& one = all_[static_cast<std::size_t>(device)];
  {
    const std::lock_guard lock(mutex_);
    if (one.context != nullptr) return one.context;
  }
  // Not under the lock, for which workers wait that use other devices.
  const sys::RelaxedCapture relaxed(*driver_);
  sys::cuda::Context made = nullptr;
  const Status status = driver_->check((*driver_)->cuDevicePrimaryCtxRetain(&made, one.handle),
                                       "the context of GPU " + std::to_string(device));
  if (!status) return status;
  const std::lock_guard lock(mutex_);
  if (one.context != nullptr)
    (*driver_)->cuDevicePrimaryCtxRelease_v2(one.handle);  // another thread was first: it is the same
  else
    one.context = made;
  return one.context;
}

bool Devices::works_on(int device) const {
  unsigned flags = 0;
  int active = 0;
  return (*driver_)->cuDevicePrimaryCtxGetState(all_[static_cast<std::size_t>(device)].handle, &flags, &active) == 0 &&
         active != 0;
}

bool Devices::reads_pages(int device) const {
  int reads = 0;
  return (*driver_)->cuDeviceGetAttribute(&reads, sys::cuda::kReadsPages,
                                          all_[static_cast<std::size_t>(device)].handle) == 0 &&
         reads != 0;
}

bool Devices::atomics(int device, int other) const {
  int native = device == other ? 1 : 0;
  const CudaDriver& cu = *driver_;
  return native != 0 ||
         (cu->cuDeviceGetP2PAttribute(&native, sys::cuda::kPeerAtomics, device, other) == 0 && native != 0);
}

Status Devices::reach(int device, int other) {
  if (device == other) return {};
  const auto from = use(device);
  const auto to = use(other);
  if (!from || !to) return from ? to.status() : from.status();
  const CudaDriver& cu = *driver_;
  int can = 0;
  Status status = cu.check(cu->cuDeviceCanAccessPeer(&can, device, other), "asking for peer access");
  if (!status) return status;
  if (can == 0)
    return {ErrorCode::unsupported, "GPU " + std::to_string(device) + " has no peer access to GPU " +
                                        std::to_string(other) + " on this machine (see `nvidia-smi topo -p2p r`)"};
  const Current current(cu, *from);
  const int result = cu->cuCtxEnablePeerAccess(*to, 0);
  if (result == sys::cuda::kErrorPeerAccessAlreadyEnabled) return {};
  return cu.check(result, "enabling peer access");
}

}  // namespace fairway::transport::cuda

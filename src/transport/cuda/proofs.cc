#include "transport/cuda/proofs.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace fairway::transport::cuda {
namespace {

using namespace sys::cuda;

constexpr std::size_t kGranule = std::size_t{2} << 20;  // bytes: the smallest allocation of a device
constexpr std::size_t kTried = 256 * 1024;              // bytes: more than the driver puts into a command

// Memory on `other` that `readers` can access.
class Scratch {
 public:
  Scratch(const CudaDriver& driver, int other, const std::vector<int>& readers) : cu_(driver) {
    AllocationProperties wanted{};
    wanted.type = kAllocationPinned;
    wanted.location = {kLocationDevice, other};
    std::vector<AccessDescription> access;
    for (const int reader : readers) access.push_back({{kLocationDevice, reader}, kReadWrite});
    status = cu_.check(cu_->cuMemCreate(&allocation_, kGranule, &wanted, 0), "allocating test memory");
    if (status) status = cu_.check(cu_->cuMemAddressReserve(&address, kGranule, 0, 0, 0), "reserving test addresses");
    if (status) status = cu_.check(cu_->cuMemMap(address, kGranule, 0, allocation_, 0), "mapping test memory");
    if (!status) return;
    mapped_ = true;
    status =
        cu_.check(cu_->cuMemSetAccess(address, kGranule, access.data(), access.size()), "peer access to test memory");
  }
  ~Scratch() {
    if (mapped_) cu_->cuMemUnmap(address, kGranule);
    if (address != 0) cu_->cuMemAddressFree(address, kGranule);
    if (allocation_ != 0) cu_->cuMemRelease(allocation_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Status status;
  Address address = 0;

 private:
  const CudaDriver& cu_;
  Allocation allocation_ = 0;
  bool mapped_ = false;
};

// On a stream of the current context.
Status copy(const CudaDriver& cu, Address to, Address from) {
  Stream stream = nullptr;
  Status status = cu.check(cu->cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0), "creating a test stream");
  if (!status) return status;
  status = cu.check(cu->cuMemcpyAsync(to, from, kTried, stream), "a test copy");
  if (status) status = cu.check(cu->cuStreamSynchronize(stream), "a test copy");
  cu->cuStreamDestroy_v2(stream);
  return status;
}

Address address_of(const void* host) {
  return reinterpret_cast<Address>(host);
}

}  // namespace

Proofs::Verdict Proofs::between(int device, int other) {
  const std::lock_guard lock(mutex_);
  const auto found = found_.find({device, other});
  return found != found_.end() ? found->second : found_[{device, other}] = attempt(device, other);
}

Proofs::Verdict Proofs::attempt(int device, int other) {
  const CudaDriver& cu = devices_->driver();
  const auto context = devices_->use(device);
  if (!context) return {{}, context.status().message()};
  const Current current(cu, *context);
  std::vector<int> readers{device};
  if (devices_->works_on(other)) readers.push_back(other);
  const Scratch scratch(cu, other, readers);
  if (!scratch.status) return {{}, scratch.status.message()};
  std::vector<std::uint32_t> out(kTried / sizeof(std::uint32_t)), back(out.size());
  // A pattern and then its complement, so that old contents match at most one of them.
  for (const std::uint32_t flip : {0u, ~0u}) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (static_cast<std::uint32_t>(i) * 2654435761u) ^ flip;
    const auto differs = [&](int reader) {
      return Verdict{Status(ErrorCode::link_failed,
                            "GPU " + std::to_string(reader) + " reads other bytes from GPU " + std::to_string(other) +
                                " than GPU " + std::to_string(device) +
                                " wrote there: peer access is broken on this machine (an IOMMU or PCIe ACS that "
                                "redirects it; `simpleP2P` of the CUDA samples shows it too)"),
                     {}};
    };
    if (const Status status = copy(cu, scratch.address, address_of(out.data())); !status) return {{}, status.message()};
    for (const int reader : readers) {
      const auto its = devices_->use(reader);
      if (!its) return {{}, its.status().message()};
      const Current there(cu, *its);
      std::memset(back.data(), 0, kTried);
      if (const Status status = copy(cu, address_of(back.data()), scratch.address); !status)
        return {{}, status.message()};
      if (back != out) return differs(reader);
    }
  }
  return {};
}

}  // namespace fairway::transport::cuda

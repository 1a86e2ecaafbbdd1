#include "transport/cuda/imported_allocation.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "sys/nvml.h"

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

using namespace sys::cuda;

namespace {

// As NVML writes it.
std::string name_of(const Uuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    for (const unsigned digit : {uuid.bytes[i] / 16u, uuid.bytes[i] % 16u}) text += "0123456789abcdef"[digit];
  }
  return text;
}

}  // namespace

ImportedAllocation::ImportedAllocation(std::shared_ptr<Devices> devices, std::shared_ptr<Proofs> proofs, Handle handle,
                                       bool ours)
    : devices_(std::move(devices)),
      proofs_(std::move(proofs)),
      handle_(std::move(handle)),
      ours_(ours),
      views_(static_cast<std::size_t>(devices_->count())) {}

ImportedAllocation::~ImportedAllocation() {
  const CudaDriver& cu = devices_->driver();
  for (int device = 0; device < devices_->count(); ++device) {
    if (views_[static_cast<std::size_t>(device)].state != State::ready || ours_ || handle_.by != Export::ipc) continue;
    if (const auto context = devices_->use(device)) {
      const Current current(cu, *context);
      cu->cuIpcCloseMemHandle(reinterpret_cast<Address>(views_[static_cast<std::size_t>(device)].base));
    }
  }
  Address at = mapped_;
  for (std::size_t i = 0; i < allocations_.size(); at += handle_.mappings[i++]) {
    cu->cuMemUnmap(at, handle_.mappings[i]);
    cu->cuMemRelease(allocations_[i]);
  }
  if (mapped_ != 0) cu->cuMemAddressFree(mapped_, handle_.size);
}

void ImportedAllocation::give(sys::Fd file, const std::string& why_none) {
  if (!file) no_file_ = why_none.empty() ? "it did not arrive" : why_none;
  if (file) files_.push_back(std::move(file));
  given_ = !no_file_.empty() || files_.size() == handle_.mappings.size();
}

void ImportedAllocation::open(int device) {
  View& view = this->view(device);
  std::byte* base = nullptr;
  Status status = prove(device);
  if (status) status = map(device, base);
  if (!status) {
    view.why = status.message();
    const bool later = status.code() == ErrorCode::queue_full;  // a capture of the program's does not allow it now
    view.state.store(later ? State::unopened : State::refused, std::memory_order_release);
    return;
  }
  view.base = base;
  const auto other = devices_->find(handle_.device);
  const std::string own = name_of(devices_->uuid(device)), owners = name_of(handle_.device);
  view.atomics = other ? devices_->atomics(device, *other) : sys::native_atomics(own, owners).value_or(false);
  // Without NVML: of all links between GPUs so far, NVLink alone has atomics.
  view.nvlink = own != owners && sys::over_nvlink(own, owners).value_or(view.atomics);
  view.state.store(State::ready, std::memory_order_release);
}

// Called before it is mapped, so that nothing is mapped over a broken path. If it was not exported, map() says why.
Status ImportedAllocation::prove(int device) {
  const auto other = devices_->find(handle_.device);
  if (!other || *other == device || (!ours_ && handle_.by == Export::none)) return {};
  const Proofs::Verdict verdict = proofs_->between(device, *other);
  view(device).unproven = verdict.why;
  return verdict.broken;
}

Status ImportedAllocation::map(int device, std::byte*& base) {
  const CudaDriver& cu = devices_->driver();
  const auto context = devices_->use(device);
  if (!context) return context.status();
  const auto other = devices_->find(handle_.device);
  if (ours_) {
    base = reinterpret_cast<std::byte*>(handle_.base);
    if (!other) return {ErrorCode::not_found, "its GPU is not visible to this process (CUDA_VISIBLE_DEVICES)"};
    if (handle_.by != Export::file || device == *other) return devices_->reach(device, *other);
    // Peer access does not include virtual memory mappings: each device needs its own access.
    const Current current(cu, *context);
    const AccessDescription access{{kLocationDevice, device}, kReadWrite};
    return cu.check(cu->cuMemSetAccess(handle_.base, handle_.size, &access, 1),
                    "access of GPU " + std::to_string(device) + " to it");
  }
  if (handle_.by == Export::none) return {ErrorCode::unsupported, "its owner cannot export it: " + handle_.why};
  const std::string hidden =
      other ? "" : "; its GPU is not one that this process sees (CUDA_VISIBLE_DEVICES, MIG or another container)";
  if (handle_.by == Export::file) {
    const Status status = map_files(device, base);
    return status ? status : Status(status.code(), status.message() + hidden);
  }
  const Current current(cu, *context);
  Address address = 0;
  const Status status =
      cu.check(cu->cuIpcOpenMemHandle_v2(&address, handle_.ipc, kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
  base = reinterpret_cast<std::byte*>(address);
  return status ? status : Status(status.code(), status.message() + hidden);
}

// Maps the files once for all devices; each device gets access separately.
Status ImportedAllocation::map_files(int device, std::byte*& base) {
  const CudaDriver& cu = devices_->driver();
  const auto context = devices_->use(device);
  if (!context) return context.status();
  const Current current(cu, *context);
  if (allocations_.size() < handle_.mappings.size() && import_failed_) {
    const Status imported = import_files();
    if (imported.code() == ErrorCode::queue_full) return imported;
    import_failed_ = imported;
  }
  if (!import_failed_) return import_failed_;
  const AccessDescription access{{kLocationDevice, device}, kReadWrite};
  base = reinterpret_cast<std::byte*>(mapped_);
  return cu.check(cu->cuMemSetAccess(mapped_, handle_.size, &access, 1),
                  "access of GPU " + std::to_string(device) + " to it");
}

// After a failure the destructor unmaps what was mapped.
Status ImportedAllocation::import_files() {
  const CudaDriver& cu = devices_->driver();
  if (files_.size() + allocations_.size() < handle_.mappings.size())
    return {ErrorCode::unsupported, "its owner sent no descriptor: " + no_file_};
  Status status;
  if (mapped_ == 0) {
    Address address = 0;
    status = cu.check(cu->cuMemAddressReserve(&address, handle_.size, 0, 0, 0), "reserving addresses for GPU memory");
    if (!status) return status;
    mapped_ = address;
  }
  Address at = mapped_;
  for (std::size_t i = 0; i < files_.size(); at += handle_.mappings[i++]) {
    if (i < allocations_.size()) continue;
    Allocation allocation = 0;
    status =
        cu.check(cu->cuMemImportFromShareableHandle(
                     &allocation, reinterpret_cast<void*>(static_cast<std::intptr_t>(files_[i].get())), kHandleFile),
                 "cuMemImportFromShareableHandle");
    if (!status) return status;
    status = cu.check(cu->cuMemMap(at, handle_.mappings[i], 0, allocation, 0), "mapping GPU memory");
    if (!status) {
      cu->cuMemRelease(allocation);
      return status;
    }
    allocations_.push_back(allocation);
  }
  files_.clear();
  return {};
}

bool ImportedAllocation::by_nvlink(int device) const {
  const View& open = view(device);
  return open.state.load(std::memory_order_acquire) == State::ready && open.nvlink;
}

// Why a device's path to it was not tested; empty: all were, or it is local to the device.
std::string ImportedAllocation::why_unproven() const {
  for (const View& view : views_)
    if (view.state.load(std::memory_order_acquire) == State::ready && !view.unproven.empty())
      return "; the path was not tested: " + view.unproven;
  return {};
}

std::string ImportedAllocation::path_description() const {
  const auto other = devices_->find(handle_.device);
  const std::string where = other ? "GPU " + std::to_string(*other) : "a GPU that this process does not see";
  for (const View& view : views_)
    if (view.state.load(std::memory_order_acquire) == State::refused) return "not reached: " + view.why;
  const std::string unproven = why_unproven();
  if (ours_) return "peer access within the process, to " + where + unproven;
  switch (handle_.by) {
    case Export::ipc: return "CUDA IPC, to " + where + "; not within one process" + unproven;
    case Export::file: {
      const std::string what = handle_.mappings.size() == 1
                                   ? "a mapped descriptor"
                                   : std::to_string(handle_.mappings.size()) + " mapped descriptors";
      return what + " of virtual memory management, to " + where + "; no IPC handle for such memory" + unproven;
    }
    case Export::none: break;
  }
  return "not reached: its owner cannot export it: " + handle_.why;
}

}  // namespace fairway::transport::cuda

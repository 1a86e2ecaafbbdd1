#include "gpu.h"

#include <atomic>
#include <charconv>

#include <fmt/format.h>

#include "pattern.h"

namespace fairway::tool::bench {

using namespace sys::cuda;

Result<std::shared_ptr<Gpu>> Gpu::open() {
  static std::weak_ptr<Gpu> opened;  // the tool's one thread
  if (auto known = opened.lock()) return known;
  auto driver = sys::CudaDriver::open();
  if (!driver) return driver.status();
  std::shared_ptr<Gpu> gpu(new Gpu);
  gpu->driver_ = *driver;
  gpu->contexts_.resize(static_cast<std::size_t>(gpu->count()));
  gpu->streams_.resize(gpu->contexts_.size());
  opened = gpu;
  return gpu;
}

Gpu::~Gpu() {
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    if (streams_[i] != nullptr) (*driver_)->cuStreamDestroy_v2(streams_[i]);
    if (contexts_[i] != nullptr) (*driver_)->cuDevicePrimaryCtxRelease_v2(static_cast<int>(i));
  }
}

Status Gpu::on(int device, const std::function<Status()>& call) {
  if (device < 0 || device >= count())
    return {ErrorCode::not_found, fmt::format("there is no GPU {} here: {} in all", device, count())};
  Context& context = contexts_[static_cast<std::size_t>(device)];
  const sys::CudaDriver& cu = *driver_;
  if (context == nullptr)
    if (Status status = cu.check(cu->cuDevicePrimaryCtxRetain(&context, device), "the context of a GPU"); !status)
      return status;
  cu->cuCtxPushCurrent_v2(context);
  const Status status = call();
  Context popped = nullptr;
  cu->cuCtxPopCurrent_v2(&popped);
  return status;
}

Result<std::shared_ptr<std::byte>> Gpu::allocate(Kind kind, int device, std::uint64_t size) {
  if (kind == Kind::mapped || kind == Kind::locked) return map(kind == Kind::mapped, device, size);
  const sys::CudaDriver& cu = *driver_;
  Address address = 0;
  void* host = nullptr;
  const Status status = on(device, [&] {
    if (kind == Kind::pinned)
      return cu.check(cu->cuMemHostAlloc(&host, size, kHostPortable), fmt::format("pinning {} bytes", size));
    return cu.check(
        kind == Kind::managed ? cu->cuMemAllocManaged(&address, size, 1) : cu->cuMemAlloc_v2(&address, size),
        fmt::format("allocating {} bytes on GPU {}", size, device));
  });
  if (!status) return status;
  auto self = open().value();
  return std::shared_ptr<std::byte>(
      host != nullptr ? static_cast<std::byte*>(host) : reinterpret_cast<std::byte*>(address),
      [self, device, host](std::byte* at) {
        (void)self->on(device, [&] {
          const sys::CudaDriver& with = self->driver();
          return with.check(
              host != nullptr ? with->cuMemFreeHost(host) : with->cuMemFree_v2(reinterpret_cast<Address>(at)),
              "freeing");
        });
      });
}

Result<std::shared_ptr<std::byte>> Gpu::map(bool lendable, int device, std::uint64_t size) {
  constexpr std::uint64_t kGranule = 2 << 20;
  const std::uint64_t whole = (size + kGranule - 1) / kGranule * kGranule;
  const sys::CudaDriver& cu = *driver_;
  Address address = 0;
  const Status status = on(device, [&] {
    AllocationProperties properties{};
    properties.type = kAllocationPinned;
    properties.handle_types = lendable ? kHandleFile : 0;
    properties.location = {kLocationDevice, device};
    Allocation allocation = 0;
    Status made = cu.check(cu->cuMemCreate(&allocation, whole, &properties, 0), "cuMemCreate");
    if (!made) return made;
    made = cu.check(cu->cuMemAddressReserve(&address, whole, 0, 0, 0), "cuMemAddressReserve");
    if (made) made = cu.check(cu->cuMemMap(address, whole, 0, allocation, 0), "cuMemMap");
    cu->cuMemRelease(allocation);
    const AccessDescription access{{kLocationDevice, device}, kReadWrite};
    if (made) made = cu.check(cu->cuMemSetAccess(address, whole, &access, 1), "cuMemSetAccess");
    return made;
  });
  if (!status) return status;
  auto self = open().value();
  return std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address), [self, whole](std::byte* at) {
    self->driver()->cuMemUnmap(reinterpret_cast<Address>(at), whole);
    self->driver()->cuMemAddressFree(reinterpret_cast<Address>(at), whole);
  });
}

Status Gpu::copy(int device, std::byte* to, const std::byte* from, std::uint64_t size) {
  return on(device, [&] {
    const sys::CudaDriver& cu = *driver_;
    Stream& stream = streams_[static_cast<std::size_t>(device)];
    Status status;
    if (stream == nullptr)
      status = cu.check(cu->cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0), "a stream");
    if (status)
      status = cu.check(cu->cuMemcpyAsync(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), size, stream),
                        "a copy");
    return status ? cu.check(cu->cuStreamSynchronize(stream), "a copy") : status;
  });
}

int gpu_count() {
  const auto driver = sys::CudaDriver::open();
  return driver ? (*driver)->devices() : 0;
}

bool parse_gpu(const std::string& name, int& device, Gpu::Kind& kind) {
  kind = Gpu::Kind::device;
  device = 0;
  if (name == "pinned") {
    kind = Gpu::Kind::pinned;
    return true;
  }
  if (!name.starts_with("gpu:")) return false;
  const char* end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + 4, end, device);
  if (read.ec != std::errc() || device < 0) return false;
  const std::string rest(read.ptr, end);
  if (rest == ":mapped") kind = Gpu::Kind::mapped;
  if (rest == ":locked") kind = Gpu::Kind::locked;
  if (rest == ":managed") kind = Gpu::Kind::managed;
  return rest.empty() || kind != Gpu::Kind::device;
}

namespace {

class CopyRoof final : public Mover {
 public:
  CopyRoof(std::string from, std::string to, std::uint64_t most)
      : from_name_(std::move(from)), to_name_(std::move(to)), most_(most) {}
  ~CopyRoof() override {
    if (stream_ == nullptr) return;
    (void)gpu_->on(device_, [&] {
      gpu_->driver()->cuStreamDestroy_v2(stream_);
      return Status();
    });
  }

  bool does(const Batch& batch) const override {
    return batch.pages == 0 && (batch.operation == Operation::write || batch.operation == Operation::read);
  }
  Status begin(const Batch&) override { return stream_ != nullptr ? Status() : open(); }
  Status once(const Batch& batch, std::uint64_t round) override {
    const sys::CudaDriver& cu = gpu_->driver();
    const bool read = batch.operation == Operation::read;
    // Several in flight are two halves with a flag behind each: one is queued while the other moves.
    const std::uint64_t parts = batch.depth == 1 ? 1 : 2;
    const bool last = batch.depth == 1 || round + 1 == batch.rounds;
    return gpu_->on(device_, [&] {
      Status status;
      for (std::uint64_t part = 0; part < parts && status; ++part) {
        for (std::uint64_t i = batch.depth * part / parts; i < batch.depth * (part + 1) / parts && status; ++i) {
          const std::uint64_t at = batch.place(round * batch.depth + i) * batch.size;
          const auto to = reinterpret_cast<Address>((read ? from_ : to_).get() + at);
          const auto from = reinterpret_cast<Address>((read ? to_ : from_).get() + at);
          status = cu.check(cu->cuMemcpyAsync(to, from, batch.size, stream_), "the roof's copy");
        }
        if (status)
          status = cu.check(cu->cuStreamWriteValue32_v2(stream_, reinterpret_cast<Address>(word_.get()), ++serial_, 0),
                            "the roof's word");
        if (status) wait_for(last && part + 1 == parts ? serial_ : serial_ - 1);
      }
      return status;
    });
  }
  Result<Cost> end(const Batch&) override { return Cost(); }

 private:
  void wait_for(std::uint32_t serial) const {
    const std::atomic_ref word(*reinterpret_cast<std::uint32_t*>(word_.get()));
    while (static_cast<std::int32_t>(word.load() - serial) < 0) {
    }
  }
  Status open() {
    auto gpu = Gpu::open();
    if (!gpu) return gpu.status();
    gpu_ = *gpu;
    int other = 0;
    Gpu::Kind from_kind{}, to_kind{};
    const bool from_gpu = parse_gpu(from_name_, device_, from_kind) && from_kind != Gpu::Kind::pinned;
    const bool to_gpu = parse_gpu(to_name_, other, to_kind) && to_kind != Gpu::Kind::pinned;
    if (!from_gpu) device_ = other;
    auto from = gpu_->allocate(from_gpu ? Gpu::Kind::device : Gpu::Kind::pinned, device_, most_);
    if (!from) return from.status();
    auto to = gpu_->allocate(to_gpu ? Gpu::Kind::device : Gpu::Kind::pinned, to_gpu ? other : device_, most_);
    if (!to) return to.status();
    auto word = gpu_->allocate(Gpu::Kind::pinned, device_, 64);
    if (!word) return word.status();
    from_ = *from;
    to_ = *to;
    word_ = *word;
    const sys::CudaDriver& cu = gpu_->driver();
    Context there = nullptr;
    if (from_gpu && to_gpu && device_ != other) {
      Status status = cu.check(cu->cuDevicePrimaryCtxRetain(&there, other), "the context of a GPU");
      if (!status) return status;
    }
    return gpu_->on(device_, [&] {
      if (there != nullptr) cu->cuCtxEnablePeerAccess(there, 0);
      return cu.check(cu->cuStreamCreateWithPriority(&stream_, kStreamNonBlocking, 0), "the roof's stream");
    });
  }

  const std::string from_name_, to_name_;
  const std::uint64_t most_;
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<std::byte> from_, to_, word_;
  sys::cuda::Stream stream_ = nullptr;
  int device_ = 0;
  std::uint32_t serial_ = 0;
};

}  // namespace

std::unique_ptr<Mover> open_copy_roof(const std::string& from, const std::string& to, std::uint64_t most) {
  return std::make_unique<CopyRoof>(from, to, most);
}

}  // namespace fairway::tool::bench

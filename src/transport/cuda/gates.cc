#include "transport/cuda/gates.h"

#include <atomic>
#include <cstring>

namespace fairway::transport::cuda {

using namespace sys::cuda;

class Gates::Gate final : public StreamGate {
 public:
  Gate(std::shared_ptr<Gates> gates, int device, Word word) : gates_(std::move(gates)), device_(device), word_(word) {}
  ~Gate() override {
    open();
    const std::lock_guard lock(gates_->mutex_);
    gates_->words_[device_].free.push_back(word_);
  }
  void open() override { std::atomic_ref(*word_.at).store(word_.last, std::memory_order_release); }

 private:
  const std::shared_ptr<Gates> gates_;
  const int device_;
  const Word word_;
};

Gates::~Gates() {
  const CudaDriver& cu = devices_->driver();
  for (const auto& [device, words] : words_) {
    const auto context = devices_->use(device);
    if (!context) continue;
    const Current current(cu, *context);
    cu->cuCtxSynchronize();
    for (void* block : words.blocks) cu->cuMemFreeHost(block);
  }
}

// Of a context that is not a primary one, any device does.
int Gates::device_of(Context context) const {
  for (int device = 0; device < devices_->count(); ++device)
    if (devices_->works_on(device))
      if (const auto own = devices_->use(device); own && *own == context) return device;
  return 0;
}

Result<std::shared_ptr<StreamGate>> Gates::hold(void* stream) {
  if (stream == nullptr)
    return Status(ErrorCode::invalid_argument, "the default stream cannot wait for a transfer: create a stream");
  const CudaDriver& cu = devices_->driver();
  const auto handle = static_cast<Stream>(stream);
  Context context = nullptr;
  if (Status status = cu.check(cu->cuStreamGetCtx(handle, &context), "the stream's context"); !status) return status;
  const Current current(cu, context);
  int capturing = 0;
  if (cu->cuStreamGetCaptureInfo_v2 != nullptr &&
      cu->cuStreamGetCaptureInfo_v2(handle, &capturing, nullptr, nullptr, nullptr, nullptr) == kSuccess &&
      capturing != 0)
    return Status(ErrorCode::invalid_argument,
                  "the stream captures a graph, whose launches would not wait: use stream_put and stream_wait_signal "
                  "in graphs");
  const int device = device_of(context);
  Word word;
  {
    const std::lock_guard lock(mutex_);
    Words& words = words_[device];
    if (words.free.empty())
      if (Status status = add(device, words); !status) return status;
    word = words.free.back();
    words.free.pop_back();
  }
  ++word.last;
  auto gate = std::make_shared<Gate>(shared_from_this(), device, word);
  const Status status =
      cu.check(cu->cuStreamWaitValue32_v2(handle, reinterpret_cast<Address>(word.at), word.last, kWaitAtLeast),
               "making the stream wait");
  if (!status) return status;
  return std::shared_ptr<StreamGate>(std::move(gate));
}

void Gates::prepare(int device) {
  const std::lock_guard lock(mutex_);
  if (Words& words = words_[device]; words.blocks.empty()) (void)add(device, words);
}

Status Gates::add(int device, Words& words) {
  constexpr std::size_t kLine = 64;
  const auto context = devices_->use(device);
  if (!context) return context.status();
  const CudaDriver& cu = devices_->driver();
  const Current current(cu, *context);
  void* block = nullptr;
  if (Status status =
          cu.check(cu->cuMemHostAlloc(&block, kWords * kLine, kHostPortable | kHostMapped), "pinning memory");
      !status)
    return status;
  std::memset(block, 0, kWords * kLine);
  words.blocks.push_back(block);
  for (std::size_t i = 0; i < kWords; ++i)
    words.free.push_back({reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(block) + i * kLine), 0});
  return {};
}

using namespace sys::cuda;

EndWords::~EndWords() {
  if (block_ != nullptr) (*driver_)->cuMemFreeHost(block_);
}

Status EndWords::prepare() {
  const std::lock_guard lock(mutex_);
  if (block_ != nullptr) return {};
  const Status status = driver_->check((*driver_)->cuMemHostAlloc(&block_, kWords * kLine, kHostPortable | kHostMapped),
                                       "pinning memory");
  if (!status) return status;
  std::memset(block_, 0, kWords * kLine);
  for (std::size_t i = 0; i < kWords; ++i)
    free_.push_back(reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(block_) + i * kLine));
  return {};
}

std::shared_ptr<std::uint32_t> EndWords::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  std::uint32_t* word = free_.back();
  free_.pop_back();
  std::atomic_ref(*word).store(0, std::memory_order_relaxed);
  return {word, [words = shared_from_this()](std::uint32_t* mine) {
            const std::lock_guard back(words->mutex_);
            words->free_.push_back(mine);
          }};
}

}  // namespace fairway::transport::cuda

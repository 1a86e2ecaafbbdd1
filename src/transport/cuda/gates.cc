#include "transport/cuda/gates.h"

#include <atomic>
#include <cstring>

#include "transport/cuda/devices.h"

namespace fairway::transport::cuda {

using namespace sys::cuda;

class Gates::Gate final : public StreamGate {
 public:
  Gate(std::shared_ptr<Gates> gates, Word word) : gates_(std::move(gates)), word_(word) {}
  ~Gate() override {
    open();
    const std::lock_guard lock(gates_->mutex_);
    gates_->free_.push_back(word_);
  }
  void open() override { std::atomic_ref(*word_.at).store(word_.last, std::memory_order_release); }

 private:
  const std::shared_ptr<Gates> gates_;
  const Word word_;
};

Gates::~Gates() {
  for (void* block : blocks_) (*driver_)->cuMemFreeHost(block);
}

Result<std::shared_ptr<StreamGate>> Gates::hold(void* stream) {
  if (stream == nullptr)
    return Status(ErrorCode::invalid_argument, "the default stream cannot wait for a transfer: create a stream");
  const auto handle = static_cast<Stream>(stream);
  Context context = nullptr;
  if (Status status = driver_->check((*driver_)->cuStreamGetCtx(handle, &context), "the stream's context"); !status)
    return status;
  const Current current(*driver_, context);
  Word word;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty())
      if (Status status = add_words(); !status) return status;
    word = free_.back();
    free_.pop_back();
  }
  ++word.last;
  auto gate = std::make_shared<Gate>(shared_from_this(), word);
  const Status status = driver_->check(
      (*driver_)->cuStreamWaitValue32_v2(handle, reinterpret_cast<Address>(word.at), word.last, kWaitAtLeast),
      "making the stream wait");
  if (!status) return status;
  return std::shared_ptr<StreamGate>(std::move(gate));
}

void Gates::prepare() {
  const std::lock_guard lock(mutex_);
  if (blocks_.empty()) (void)add_words();
}

Status Gates::add_words() {
  constexpr std::size_t kLine = 64;
  void* block = nullptr;
  if (Status status = driver_->check((*driver_)->cuMemHostAlloc(&block, kWords * kLine, kHostPortable | kHostMapped),
                                     "pinning memory");
      !status)
    return status;
  std::memset(block, 0, kWords * kLine);
  blocks_.push_back(block);
  for (std::size_t i = 0; i < kWords; ++i)
    free_.push_back({reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(block) + i * kLine), 0});
  return {};
}

}  // namespace fairway::transport::cuda

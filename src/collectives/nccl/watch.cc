#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "collectives/nccl/calls.h"
#include "sys/cuda_memory.h"
#include "sys/thread.h"

namespace fairway::collectives {
namespace {

constexpr std::chrono::milliseconds kTick{10};
constexpr Timeout kNotable{20'000};  // inside: from then on it is asked why
// A rank that leaves has ended its operations, and what it sent is here, or soon.
constexpr Timeout kLeft{200'000};
constexpr std::chrono::seconds kEnd{2};
constexpr std::size_t kRemembered = 4096;
constexpr std::uint64_t kNumber = 0xFFFFFFF;  // what a mark has of an operation's number

template <class T>
T look(const T* word) {
  return std::atomic_ref(*const_cast<T*>(word)).load(std::memory_order_acquire);
}

}  // namespace

// What the thread uses. Shared by it and its owner, so that it may outlive the owner while NCCL holds it up.
class NcclWatch::Thread {
 public:
  Thread(std::shared_ptr<NcclGroup> group, const GpuGroup& on, int rank, int size, bool guarded)
      : group_(std::move(group)),
        driver_(on.driver()),
        context_(on.context()),
        words_(on.watched()),
        rank_(rank),
        size_(size),
        guarded_(guarded) {}
  ~Thread() {
    const sys::CurrentContext current(*driver_, context_);
    if (stream_ != nullptr) (*driver_)->cuStreamDestroy_v2(stream_);
    if (head_ != nullptr) (*driver_)->cuMemFreeHost(head_);
  }

  Status prepare() {
    const sys::CudaDriver& cu = *driver_;
    const sys::CurrentContext current(cu, context_);
    void* memory = nullptr;
    Status status = cu.check(
        cu->cuMemHostAlloc(&memory, sizeof(gpu::ScratchHead), sys::cuda::kHostPortable | sys::cuda::kHostMapped),
        "pinning");
    head_ = static_cast<gpu::ScratchHead*>(memory);
    if (!status) return status;
    return cu.check(cu->cuStreamCreateWithPriority(&stream_, sys::cuda::kStreamNonBlocking, 0), "making a stream");
  }
  static Status begin(const std::shared_ptr<Thread>& self) {
    auto thread = sys::Thread::start("fairway-nccl", [self] { self->run(); });
    if (!thread) return thread.status();
    self->thread_ = std::move(*thread);
    return {};
  }
  void end() {
    {
      std::unique_lock lock(mutex_);
      ends_ = true;
      changed_.notify_all();
      while (!changed_.wait_for(lock, kEnd, [this] { return ended_; }))
        if (in_nccl_) return thread_.detach();
    }
    thread_.join();
  }

  void allow(std::uint64_t number, Timeout timeout) {
    const std::lock_guard lock(mutex_);
    timeouts_[number % kRemembered] = {number & kNumber, timeout};
    longest_ = std::max(longest_, timeout);
  }
  void give_up(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = NcclFailure{.peer = rank_, .text = why.message()};
    changed_.notify_all();
  }
  std::optional<NcclFailure> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void run() {
    // While a program captures, this thread's calls would fail, and end the capture.
    int mode = sys::cuda::kCaptureRelaxed;
    if ((*driver_)->cuThreadExchangeStreamCaptureMode != nullptr) (*driver_)->cuThreadExchangeStreamCaptureMode(&mode);
    std::unique_lock lock(mutex_);
    bool over = false;
    while (!ends_ && !over) {
      lock.unlock();
      over = tick(Clock::now());
      lock.lock();
      if (!over) changed_.wait_for(lock, kTick, [this] { return ends_; });
    }
    ended_ = true;
    changed_.notify_all();
  }

  // Calls NCCL, which may take any time. False: the owner has gone, or goes, and with it all that words_ points to.
  template <class Call>
  bool ask_nccl(Call call) {
    {
      const std::lock_guard lock(mutex_);
      in_nccl_ = true;
    }
    call();
    const std::lock_guard lock(mutex_);
    in_nccl_ = false;
    return !ends_;
  }

  // True: NCCL was ended, and nothing is looked at any more.
  bool tick(Time now) {
    if (look(&words_.report->state) != 0 || look(words_.stop) != 0) {  // they say why
      ask_nccl([this] { group_->abort(); });
      return true;
    }
    std::optional<NcclFailure> found = failure();  // of give_up()
    Status error;
    if (!ask_nccl([&] { error = group_->error(); })) return true;
    if (!found && !error) {
      found.emplace();
      found->text = error.message();
    }
    for (std::uint32_t place = 0; place < gpu::Layout::kPlaces && !found; ++place) found = in_place(place, now);
    if (!found && !guarded_) found = dead_peer(std::nullopt);
    if (!found) return false;
    {
      const std::lock_guard lock(mutex_);
      failure_ = *found;
    }
    spread(*found);
    ask_nccl([this] { group_->abort(); });
    return true;
  }

  std::optional<NcclFailure> in_place(std::uint32_t place, Time now) {
    const std::uint64_t word = look(&words_.marks[place]);
    Inside& inside = inside_[place];
    if (word != inside.word) {
      inside = {word, now};
      return {};
    }
    const Timeout age = std::chrono::duration_cast<Timeout>(now - inside.since);
    if ((word >> 32 & 1) == 0 || age < kNotable) return {};
    std::optional<NcclFailure> found = told(place, static_cast<std::uint32_t>(word >> 33));
    if (!found) found = dead_peer(age);
    if (!found && age >= timeout_of(word >> 4 & kNumber)) {
      found.emplace();
      found->cause = gpu::Cause::late;
    }
    if (!found) return {};
    found->number = word >> 4 & kNumber;
    found->kind = static_cast<CollectiveKind>(word & 0xF);
    place_ = place;
    call_ = static_cast<std::uint32_t>(word >> 33);
    return found;
  }

  Timeout timeout_of(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto& [known, timeout] = timeouts_[number % kRemembered];
    return known == number ? timeout : longest_;
  }

  // `inside`: how long an operation has been; none: it may be that none is.
  std::optional<NcclFailure> dead_peer(std::optional<Timeout> inside) const {
    for (int peer = 0; peer < size_; ++peer) {
      const std::uint32_t* const ended = words_.ended[static_cast<std::size_t>(peer)];
      const std::uint32_t code = ended == nullptr ? 0 : look(ended);
      const auto why = static_cast<ErrorCode>(code);
      const bool has_left = why == ErrorCode::revoked || why == ErrorCode::closed;
      if (code == 0 || (has_left && (!inside || *inside < kLeft))) continue;
      NcclFailure found;
      found.cause = gpu::Cause::gone;
      found.peer = peer;
      found.code = code;
      return found;
    }
    return {};
  }

  // What others' kernels and watches have left in this rank's scratch memory.
  std::optional<NcclFailure> told(std::uint32_t place, std::uint32_t call) {
    const sys::CudaDriver& cu = *driver_;
    const sys::CurrentContext current(cu, context_);
    const auto head = reinterpret_cast<sys::cuda::Address>(head_);
    if (cu->cuMemcpyAsync(head, words_.scratch[static_cast<std::size_t>(rank_)], sizeof(gpu::ScratchHead), stream_) !=
            0 ||
        cu->cuStreamSynchronize(stream_) != 0)
      return {};
    for (int by = 0; by < size_; ++by) {
      const std::uint64_t word = head_->told[by];
      const bool later = (word >> 32 & 0xFFF) == place && static_cast<std::int32_t>(word - call) > 1;
      if (word == 0 || later) continue;
      NcclFailure found;
      found.cause = gpu::Cause::told;
      found.by = by;
      found.peer = static_cast<int>(word >> 56 & 15);
      found.code = static_cast<std::uint32_t>(word >> 60);
      if (found.peer >= size_) found.peer = by;
      return found;
    }
    return {};
  }

  // This rank's later kernels end at once, and so does what others wait for. Best effort: what cannot be told is found
  // by the others' own deadlines.
  void spread(const NcclFailure& found) {
    const sys::CudaDriver& cu = *driver_;
    const sys::CurrentContext current(cu, context_);
    head_->failed = 1;
    const auto cause = found.cause == gpu::Cause::none ? gpu::Cause::late : found.cause;
    head_->told[0] = gpu::told_word(cause, static_cast<unsigned>(found.peer < 0 ? rank_ : found.peer),
                                    gpu::Waits::start, place_, call_);
    const auto from = reinterpret_cast<sys::cuda::Address>(head_);
    for (int to = 0; to < size_; ++to) {
      const sys::cuda::Address head = words_.scratch[static_cast<std::size_t>(to)];
      if (to == rank_)
        cu->cuMemcpyAsync(head, from, sizeof head_->failed, stream_);
      else if (found.cause != gpu::Cause::told)
        cu->cuMemcpyAsync(
            head + offsetof(gpu::ScratchHead, told) + static_cast<std::size_t>(rank_) * sizeof(std::uint64_t),
            from + offsetof(gpu::ScratchHead, told), sizeof(std::uint64_t), stream_);
    }
    cu->cuStreamSynchronize(stream_);
  }

  const std::shared_ptr<NcclGroup> group_;
  const std::shared_ptr<const sys::CudaDriver> driver_;
  const sys::cuda::Context context_;
  const GpuGroup::Watched words_;
  const int rank_, size_;
  const bool guarded_;
  std::array<Inside, gpu::Layout::kPlaces> inside_ = {};
  std::uint32_t place_ = 0, call_ = 0;  // of what has failed
  sys::cuda::Stream stream_ = nullptr;
  gpu::ScratchHead* head_ = nullptr;  // pinned

  mutable std::mutex mutex_;                                                  // guards the rest
  std::array<std::pair<std::uint64_t, Timeout>, kRemembered> timeouts_ = {};  // by the number's last bits
  Timeout longest_{0};
  std::condition_variable changed_;
  bool ends_ = false, ended_ = false, in_nccl_ = false;
  std::optional<NcclFailure> failure_;
  sys::Thread thread_;
};

Result<std::unique_ptr<NcclWatch>> NcclWatch::start(std::shared_ptr<NcclGroup> group, const GpuGroup& on, int rank,
                                                    int size, bool guarded) {
  auto thread = std::make_shared<Thread>(std::move(group), on, rank, size, guarded);
  if (Status status = thread->prepare(); !status) return status.with_context("watching NCCL");
  if (Status status = Thread::begin(thread); !status) return status.with_context("watching NCCL");
  return std::unique_ptr<NcclWatch>(new NcclWatch(std::move(thread)));
}

NcclWatch::~NcclWatch() {
  thread_->end();
}
void NcclWatch::allow(std::uint64_t number, Timeout timeout) {
  thread_->allow(number, timeout);
}
void NcclWatch::give_up(const Status& why) {
  thread_->give_up(why);
}
std::optional<NcclFailure> NcclWatch::failure() const {
  return thread_->failure();
}

}  // namespace fairway::collectives

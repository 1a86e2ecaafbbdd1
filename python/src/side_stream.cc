#include "side_stream.h"

#include <utility>

namespace fairway::python {
namespace {

constexpr unsigned kNoTiming = 2;

sys::cuda::Stream handle(std::uintptr_t stream) {
  return reinterpret_cast<sys::cuda::Stream>(stream);
}

}  // namespace

class SideStream::OnGpu {
 public:
  explicit OnGpu(const SideStream& side) : cu_(*side.driver_) {
    pushed_ = cu_->cuCtxPushCurrent_v2(side.context_) == sys::cuda::kSuccess;
  }
  ~OnGpu() {
    sys::cuda::Context popped = nullptr;
    if (pushed_) (void)cu_->cuCtxPopCurrent_v2(&popped);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  const sys::CudaDriver& cu_;
  bool pushed_ = false;
};

SideStream::SideStream(std::shared_ptr<Group> group, std::shared_ptr<const sys::CudaDriver> driver,
                       std::uintptr_t stream)
    : group_(std::move(group)), driver_(std::move(driver)), stream_(handle(stream)) {}

std::shared_ptr<SideStream> SideStream::open(std::shared_ptr<Group> group, int gpu, std::uintptr_t stream) {
  std::shared_ptr<SideStream> made(new SideStream(std::move(group), take(sys::CudaDriver::open()), stream));
  const sys::CudaDriver& cu = *made->driver_;
  check(cu.check(cu->cuDeviceGet(&made->device_, gpu), "the GPU"));
  check(cu.check(cu->cuDevicePrimaryCtxRetain(&made->context_, made->device_), "the GPU's primary context"));
  const OnGpu on(*made);
  check(cu.check(cu->cuEventCreate(&made->ahead_, kNoTiming), "making an event"));
  return made;
}

SideStream::~SideStream() {
  const sys::CudaDriver& cu = *driver_;
  if (context_ == nullptr) return;
  {
    const OnGpu on(*this);
    if (ahead_ != nullptr) (void)cu->cuEventDestroy_v2(ahead_);
    for (const auto event : free_) (void)cu->cuEventDestroy_v2(event);
  }
  (void)cu->cuDevicePrimaryCtxRelease_v2(device_);
}

sys::cuda::Event SideStream::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const auto event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  sys::cuda::Event event = nullptr;
  const OnGpu on(*this);
  check(driver_->check((*driver_)->cuEventCreate(&event, kNoTiming), "making an event"));
  return event;
}

void SideStream::give_back(sys::cuda::Event event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

template <class Enqueue>
Status SideStream::enqueue(std::uintptr_t current, SideEvent& done, Enqueue enqueue) {
  const sys::CudaDriver& cu = *driver_;
  const OnGpu on(*this);
  if (Status status = cu.check(cu->cuEventRecord(ahead_, handle(current)), "an event of the current stream"); !status)
    return status;
  if (Status status = cu.check(cu->cuStreamWaitEvent(stream_, ahead_, 0), "waiting for the current stream"); !status)
    return status;
  if (Status status = enqueue(); !status) return status;
  if (Status status = cu.check(cu->cuEventRecord(done.event_, stream_), "an event of the group's stream"); !status)
    return status;
  int capturing = 0;
  unsigned long long capture = 0;
  if (cu->cuStreamGetCaptureInfo_v2 != nullptr &&
      cu->cuStreamGetCaptureInfo_v2(stream_, &capturing, &capture, nullptr, nullptr, nullptr) == sys::cuda::kSuccess)
    done.captured_ = capturing == sys::cuda::kCaptureActive;
  return {};
}

std::shared_ptr<SideEvent> SideStream::run(std::uintptr_t current, std::vector<PlacedCall> calls) {
  auto done = std::make_shared<SideEvent>(shared_from_this());
  group_->in_turn(
      [=, this, calls = std::move(calls)](Communicator& communicator) {
        return enqueue(current, *done, [&] {
          for (const auto& [made, input, output, count] : calls) {
            Collective call = made->call;
            call.input = reinterpret_cast<const void*>(input);
            call.output = reinterpret_cast<void*>(output);
            call.count = count;
            if (Status status = communicator.stream_run(call, stream_); !status) return status;
          }
          return Status();
        });
      },
      true);
  return done;
}

std::shared_ptr<SideEvent> SideStream::run_messages(std::uintptr_t current, const MessageTuples& messages) {
  auto done = std::make_shared<SideEvent>(shared_from_this());
  group_->in_turn(
      [=, this, all = messages_of(messages)](Communicator& communicator) {
        return enqueue(current, *done, [&] { return communicator.stream_messages(all, stream_); });
      },
      true);
  return done;
}

SideEvent::SideEvent(std::shared_ptr<SideStream> side) : side_(std::move(side)), event_(side_->take_event()) {}

SideEvent::~SideEvent() {
  side_->give_back(event_);
}

void SideEvent::record() {
  const sys::CudaDriver& cu = *side_->driver_;
  const SideStream::OnGpu on(*side_);
  check(cu.check(cu->cuEventRecord(event_, side_->stream_), "an event of the group's stream"));
}

bool SideEvent::query() const {
  const sys::CudaDriver& cu = *side_->driver_;
  const int answer = [&] {
    const Unlocked unlocked;
    const SideStream::OnGpu on(*side_);
    return cu->cuEventQuery(event_);
  }();
  if (answer == sys::cuda::kErrorNotReady) return false;
  check(cu.check(answer, "whether the group's stream has come past"));
  return true;
}

void SideEvent::stream_wait(std::uintptr_t stream) const {
  side_->group_->check_failure();
  const sys::CudaDriver& cu = *side_->driver_;
  const SideStream::OnGpu on(*side_);
  check(cu.check(cu->cuStreamWaitEvent(handle(stream), event_, 0), "waiting for the group's stream"));
}

void bind_side_streams(py::module_& module) {
  py::class_<SideEvent, std::shared_ptr<SideEvent>>(module, "_SideEvent")
      .def("record", &SideEvent::record)
      .def("query", &SideEvent::query)
      .def("stream_wait", &SideEvent::stream_wait)
      .def_property_readonly("captured", &SideEvent::captured);
  py::class_<SideStream, std::shared_ptr<SideStream>>(module, "_SideStream")
      .def(py::init(&SideStream::open))
      .def("run", &SideStream::run)
      .def("run_messages", &SideStream::run_messages);
}

}  // namespace fairway::python

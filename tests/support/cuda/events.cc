#include <atomic>
#include <memory>

#include "support/cuda/stream.h"
#include "sys/cuda.h"

// Events of the stand-in driver. Streams fork and join by them in a capture, too.
namespace cu = fairway::sys::cuda;

namespace {

struct Happening {
  std::atomic<bool> reached{false};
  std::shared_ptr<standin::Capture> capture;  // that it is a part of
};
using Kept = std::shared_ptr<Happening>;

Kept& happening_of(cu::Event event) {
  return *reinterpret_cast<Kept*>(event);
}
standin::Stream& stream_of(cu::Stream stream) {
  return *reinterpret_cast<standin::Stream*>(stream);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuEventCreate(cu::Event* event, unsigned) {
  *event = reinterpret_cast<cu::Event>(new Kept(std::make_shared<Happening>()));
  return cu::kSuccess;
}
int cuEventRecord(cu::Event event, cu::Stream stream) {
  const auto happening = std::make_shared<Happening>();
  happening->capture = stream_of(stream).capture();
  happening_of(event) = happening;
  stream_of(stream).post([happening] {
    happening->reached.store(true);
    happening->reached.notify_all();
    return true;
  });
  return cu::kSuccess;
}
int cuEventQuery(cu::Event event) {
  if (standin::refuses_unsafe_call()) return cu::kErrorCaptureUnsupported;
  if (happening_of(event)->capture != nullptr) return cu::kErrorCapturedEvent;
  return happening_of(event)->reached.load() ? cu::kSuccess : cu::kErrorNotReady;
}
int cuEventDestroy_v2(cu::Event event) {
  delete reinterpret_cast<Kept*>(event);
  return cu::kSuccess;
}
int cuStreamWaitEvent(cu::Stream stream, cu::Event event, unsigned) {
  constexpr int kCaptureMerges = 904;
  const auto happening = happening_of(event);
  if (happening->capture != nullptr && !stream_of(stream).join(happening->capture)) return kCaptureMerges;
  stream_of(stream).post([happening] {
    happening->reached.wait(false);
    return true;
  });
  return cu::kSuccess;
}
}
#pragma GCC visibility pop

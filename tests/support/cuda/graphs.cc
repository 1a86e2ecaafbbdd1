#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "support/cuda/stream.h"
#include "sys/cuda.h"

// Streams' numbers, captures and graphs of the stand-in driver. Fairway calls the first of them, and those of graphs
// where it measures.
namespace cu = fairway::sys::cuda;

namespace {

constexpr int kNoContextForGraph = 201, kCaptureUnsupported = 900, kCaptureInvalid = 901;

thread_local int mode_of_thread = 0;
std::atomic<unsigned> refusals{0};  // of the next unsafe calls
std::mutex captures_mutex;          // guards the next
std::vector<std::weak_ptr<standin::Capture>>& global_captures() {
  static auto* const captures = new std::vector<std::weak_ptr<standin::Capture>>;
  return *captures;
}

standin::Stream& of(cu::Stream stream) {
  return *reinterpret_cast<standin::Stream*>(stream);
}

}  // namespace

namespace standin {

void keep_global(const std::shared_ptr<Capture>& capture) {
  const std::lock_guard lock(captures_mutex);
  global_captures().push_back(capture);
}

bool refuses_unsafe_call() {
  for (unsigned left = refusals.load(); left != 0;)
    if (refusals.compare_exchange_weak(left, left - 1)) return true;
  if (mode_of_thread == cu::kCaptureRelaxed) return false;
  const std::lock_guard lock(captures_mutex);
  bool refused = false;
  std::erase_if(global_captures(), [&](const std::weak_ptr<Capture>& each) {
    const auto capture = each.lock();
    if (!capture || capture->ended) return true;
    capture->failed = refused = true;
    return false;
  });
  return refused;
}

}  // namespace standin

#pragma GCC visibility push(default)
extern "C" {

int cuCtxSynchronize();  // driver.cc

// For tests: so many of the next calls that a capture does not allow are refused.
void fairway_standin_refuse_unsafe(unsigned calls) {
  refusals = calls;
}

int cuStreamGetId(cu::Stream stream, unsigned long long* id) {
  if (of(stream).capture() != nullptr) return kCaptureUnsupported;  // as driver 580 answers
  *id = of(stream).id();
  return 0;
}
int cuStreamGetCaptureInfo_v2(cu::Stream stream, int* status, unsigned long long* id, cu::Graph* graph, void*, void*) {
  const auto capture = of(stream).capture();
  *status = capture != nullptr ? fairway::sys::cuda::kCaptureActive : 0;
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->number;
  if (graph != nullptr) *graph = capture == nullptr ? nullptr : reinterpret_cast<cu::Graph>(&capture->graph);
  return 0;
}
int cuUserObjectCreate(cu::UserObject* object, void* data, void (*ends)(void*), unsigned references, unsigned flags) {
  if (references != 1 || flags != cu::kNoSynchronization) return 1;
  *object = reinterpret_cast<cu::UserObject>(new std::shared_ptr<void>(data, ends));
  return 0;
}
int cuUserObjectRelease(cu::UserObject object, unsigned) {
  delete reinterpret_cast<std::shared_ptr<void>*>(object);
  return 0;
}
// The reference becomes the graph's.
int cuGraphRetainUserObject(cu::Graph graph, cu::UserObject object, unsigned references, unsigned flags) {
  if (references != 1 || flags != cu::kMoveReference) return 1;
  reinterpret_cast<standin::Graph*>(graph)->objects.push_back(*reinterpret_cast<std::shared_ptr<void>*>(object));
  return cuUserObjectRelease(object, 1);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  *mode = std::exchange(mode_of_thread, *mode);
  return 0;
}
int cuStreamBeginCapture_v2(cu::Stream stream, int mode) {
  static std::atomic<unsigned long long> captures{0};
  return of(stream).begin_capture(++captures, mode == 0) ? 0 : kCaptureInvalid;
}
int cuStreamEndCapture(cu::Stream stream, cu::Graph* graph) {
  auto captured = of(stream).end_capture();
  *graph = reinterpret_cast<cu::Graph>(captured.release());
  return *graph != nullptr ? 0 : kCaptureInvalid;
}
int cuGraphInstantiateWithFlags(cu::ReadyGraph* executable, cu::Graph graph, unsigned long long) {
  if (cuCtxSynchronize() != 0) return kNoContextForGraph;  // it is for the current context
  *executable = reinterpret_cast<cu::ReadyGraph>(new standin::Graph(*reinterpret_cast<standin::Graph*>(graph)));
  return 0;
}
int cuGraphLaunch(cu::ReadyGraph executable, cu::Stream stream) {
  if (stream == nullptr) return 1;
  for (const auto& work : reinterpret_cast<standin::Graph*>(executable)->work) of(stream).post(work);
  return 0;
}
int cuGraphExecDestroy(cu::ReadyGraph executable) {
  delete reinterpret_cast<standin::Graph*>(executable);
  return 0;
}
int cuGraphDestroy(cu::Graph graph) {
  delete reinterpret_cast<standin::Graph*>(graph);
  return 0;
}
}
#pragma GCC visibility pop

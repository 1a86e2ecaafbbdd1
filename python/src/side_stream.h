#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "group.h"
#include "sys/cuda.h"

namespace fairway::python {

class SideStream;

// What a side stream had when this was recorded. Owns an event of the driver. Any thread, with the interpreter's lock.
class SideEvent {
 public:
  explicit SideEvent(std::shared_ptr<SideStream> side);
  ~SideEvent();
  SideEvent(const SideEvent&) = delete;
  SideEvent& operator=(const SideEvent&) = delete;

  // Once more: with what was put into the side stream since.
  void record();
  // Whether the GPU has come past it.
  [[nodiscard]] bool query() const;
  // What `stream` gets from here on waits for it. Raises what has ended the communicator, as far as that is known.
  void stream_wait(std::uintptr_t stream) const;
  // Whether a graph has captured it: then the GPU comes past it only when the graph is launched.
  [[nodiscard]] bool captured() const { return captured_; }

 private:
  friend class SideStream;
  const std::shared_ptr<SideStream> side_;
  const sys::cuda::Event event_;
  bool captured_ = false;
};

// A call that was made once, the places of its input and output, and how many elements.
using PlacedCall = std::tuple<std::shared_ptr<PyCall>, std::uintptr_t, std::uintptr_t, std::size_t>;

// A stream that runs a communicator's operations beside the streams of their callers, each behind what its caller's
// stream has then. The stream is the caller's and outlives it. A resource; its Python object and what was recorded own
// it.
class SideStream : public std::enable_shared_from_this<SideStream> {
 public:
  // With the interpreter's lock. `gpu`: that of use_gpu().
  static std::shared_ptr<SideStream> open(std::shared_ptr<Group> group, int gpu, std::uintptr_t stream);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Both: in the group's turn, all at once. `current`: the caller's stream, also the default one.
  std::shared_ptr<SideEvent> run(std::uintptr_t current, std::vector<PlacedCall> calls);
  std::shared_ptr<SideEvent> run_messages(std::uintptr_t current, const MessageTuples& messages);

 private:
  friend class SideEvent;
  class OnGpu;  // makes the GPU's context the thread's
  SideStream(std::shared_ptr<Group> group, std::shared_ptr<const sys::CudaDriver> driver, std::uintptr_t stream);

  template <class Enqueue>
  Status enqueue(std::uintptr_t current, SideEvent& done, Enqueue enqueue);
  [[nodiscard]] sys::cuda::Event take_event();
  void give_back(sys::cuda::Event event);

  const std::shared_ptr<Group> group_;
  const std::shared_ptr<const sys::CudaDriver> driver_;
  const sys::cuda::Stream stream_;
  sys::cuda::Device device_ = 0;
  sys::cuda::Context context_ = nullptr;
  sys::cuda::Event ahead_ = nullptr;  // in the group's turn: what a caller's stream has
  std::mutex mutex_;                  // guards free_
  std::vector<sys::cuda::Event> free_;
};

void bind_side_streams(py::module_& module);

}  // namespace fairway::python

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "process/cuda/gpu_pair.h"
#include "support/open_engine.h"

// A holder of mappings, and a child that owns what they reach.
namespace fairway::gpu_pair {

inline constexpr std::uint64_t kSignal = kBytes - 64;  // where it lies in the child's memory

// The child: publishes its GPU's memory of that kind and ordinary memory of the host, and does what it is told:
//   deregister <ms>   "ok", or the error
//   back <length>     reads so many bytes of its own, and says whether they are pattern 1
//   word              the signal's value
//   close             closes its engine
//   state             whether the memory is fenced: "fenced", "pending", or "something else"
inline void obey(ChildProcess::Line& line, const std::string& kind, const std::vector<std::string>& transports) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  DeviceMemory gpus;
  auto engine = open_engine(options_of("owner", transports));
  if (!engine) return line.write(engine.status().to_string());
  const int device = gpus.devices() > 1 ? 1 : 0;
  std::byte* bytes = make(gpus, kind, device);
  gpus.write(bytes, std::vector<std::byte>(kBytes), device);
  const auto memory = engine->register_memory(bytes, kBytes, Access::all);
  const auto host = engine->allocate(4096, Access::all);
  if (!memory || !host || !engine->publish("memory", *memory) || !engine->publish("host", *host))
    return line.write("no memory");
  line.write(engine->address());
  for (std::string words = line.read(); !words.empty(); words = line.read()) {
    std::istringstream in(words);
    std::string what;
    std::uint64_t number = 0;
    in >> what >> number;
    if (what == "deregister") {
      const Status status = engine->deregister(*memory, std::chrono::milliseconds(number));
      line.write(status ? "ok" : status.to_string());
    } else if (what == "back") {
      std::vector<std::byte> seen(number);
      gpus.read(seen, bytes, device);
      line.write(seen == patterns(1, number) ? "as sent" : "something else");
    } else if (what == "word") {
      std::uint64_t word = 0;
      gpus.read(std::as_writable_bytes(std::span(&word, 1)), bytes + kSignal, device);
      line.write(std::to_string(word));
    } else if (what == "close") {
      engine->close();
      line.write("closed");
    } else if (what == "state") {
      const Fence state = engine->fence_state(*memory);
      line.write(state == Fence::fenced ? "fenced" : state == Fence::pending ? "pending" : "something else");
    }
  }
}

class CudaMapping : public GpuPair {
 protected:
  void meet(const std::string& kind = "malloc", const std::vector<std::string>& transports = kAll) {
    meet_one_who([=](auto& line) { obey(line, kind, transports); }, transports);
  }
  std::string ask(const std::string& words) {
    child_->write(words);
    return child_->read();
  }
  // The next mapping_ended, for so long.
  PeerEvent ending(Timeout within = kSoon) {
    const auto until = std::chrono::steady_clock::now() + within;
    std::array<PeerEvent, 1> events;
    while (std::chrono::steady_clock::now() < until) {
      (void)engine_->wait_peer_event(std::chrono::milliseconds(50));
      while (engine_->poll_peer_events(events) == 1)
        if (events[0].kind == PeerEvent::Kind::mapping_ended) return events[0];
    }
    return {};
  }
  static ErrorCode said(const Mapping& mapping) {
    return static_cast<ErrorCode>(std::atomic_ref(*const_cast<std::uint32_t*>(mapping.ended)).load());
  }
  sys::cuda::Stream make_stream(int device) {
    sys::cuda::Stream stream = nullptr;
    gpus_->on(device, [&] {
      gpus_->check(gpus_->driver()->cuStreamCreateWithPriority(&stream, sys::cuda::kStreamNonBlocking, 0), "stream");
      return 0;
    });
    streams_.emplace_back(device, stream);
    return stream;
  }
  void synchronize(sys::cuda::Stream stream) {
    gpus_->on(0, [&] {
      gpus_->check(gpus_->driver()->cuStreamSynchronize(stream), "the stream");
      return 0;
    });
  }
  Region registered(std::size_t size, int device) {
    places_.push_back(gpus_->allocate(size, device));
    gpus_->write(places_.back(), std::vector<std::byte>(size), device);
    return engine_->register_memory(places_.back(), size, Access::read | Access::write).value();
  }
  ~CudaMapping() override {
    for (const auto& [device, stream] : streams_) gpus_->driver()->cuStreamDestroy_v2(stream);
  }

  std::vector<std::pair<int, sys::cuda::Stream>> streams_;
};

}  // namespace fairway::gpu_pair

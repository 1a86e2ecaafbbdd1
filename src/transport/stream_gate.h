#pragma once

namespace fairway::transport {

// What a stream of the caller's stands at. It goes on once open() was called, on any thread, or the last owner is gone:
// a stream is never left standing.
class StreamGate {
 public:
  virtual ~StreamGate() = default;
  virtual void open() = 0;
};

}  // namespace fairway::transport

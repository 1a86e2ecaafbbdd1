#pragma once

namespace fairway::transport {

// Makes a stream of the caller wait. It continues once open() is called, on any thread, or the last owner of the gate
// is gone, so a stream never waits for ever.
class StreamGate {
 public:
  virtual ~StreamGate() = default;
  virtual void open() = 0;
};

}  // namespace fairway::transport

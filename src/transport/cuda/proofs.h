#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "transport/cuda/devices.h"

namespace fairway::transport::cuda {

// Whether one GPU reads from another's memory what it has written there: an IOMMU or a bridge that redirects what GPUs
// say to each other loses bytes without an error of the driver's. Tried with memory of this process's own on the other
// GPU, since in a user's nothing is ours to write to; a peer's memory there is reached over the same wire.
class Proofs {
 public:
  struct Verdict {
    Status spoilt;    // not ok: other bytes came back
    std::string why;  // it could not be tried; empty: it was
  };
  explicit Proofs(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}
  // Any thread but a worker's: the first call for a pair takes milliseconds. Asks for no context on `other`, which
  // would cost hundreds of MiB of its memory.
  Verdict between(int device, int other);

 private:
  Verdict attempt(int device, int other);

  std::shared_ptr<Devices> devices_;
  std::mutex mutex_;  // guards what was found, and is held while it is being found
  std::map<std::pair<int, int>, Verdict> found_;
};

}  // namespace fairway::transport::cuda

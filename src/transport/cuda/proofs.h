#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "transport/cuda/devices.h"

namespace fairway::transport::cuda {

// Tests that a GPU reads back from another GPU's memory what it wrote there: an IOMMU or a bridge that redirects
// traffic between GPUs can lose bytes without a driver error. The test uses memory that this process allocates on the
// other GPU; a peer's memory there is reached over the same path.
class Proofs {
 public:
  struct Verdict {
    Status broken;    // not ok: other bytes came back
    std::string why;  // why it could not be tested; empty: it was
  };
  explicit Proofs(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}
  // Not on a worker: the first call for a pair takes milliseconds. Creates no context on `other`, which would cost
  // hundreds of MiB of its memory.
  Verdict between(int device, int other);

 private:
  Verdict attempt(int device, int other);

  std::shared_ptr<Devices> devices_;
  std::mutex mutex_;  // guards found_; held during a test
  std::map<std::pair<int, int>, Verdict> found_;
};

}  // namespace fairway::transport::cuda

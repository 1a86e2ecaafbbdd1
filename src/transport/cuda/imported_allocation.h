#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "transport/cuda/devices.h"
#include "transport/cuda/exporter.h"
#include "transport/host/mover.h"

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

// An allocation imported into this process. It is opened once for each device that copies from or to it, on the
// janitor, since the driver may take milliseconds or wait for a kernel; the worker reads the resulting state.
class ImportedAllocation final : public host::Mover::Imported {
 public:
  enum class State : std::uint8_t { unopened, opening, ready, refused };
  struct View {
    std::atomic<State> state{State::unopened};
    std::byte* base = nullptr;  // if ready
    std::string why;            // if refused
    std::string unproven;       // if ready: why its path was not tested
    bool atomics = false;       // if ready: that device does atomics on it
    bool nvlink = false;        // if ready: it reaches it over NVLink
  };

  ImportedAllocation(std::shared_ptr<Devices> devices, std::shared_ptr<Proofs> proofs, Handle handle, bool ours);
  ~ImportedAllocation() override;  // on the janitor, since the driver may block

  const Handle& handle() const { return handle_; }
  [[nodiscard]] bool ours() const { return ours_; }  // an allocation of this process itself
  View& view(int device) { return views_[static_cast<std::size_t>(device)]; }
  const View& view(int device) const { return views_[static_cast<std::size_t>(device)]; }
  bool by_nvlink(int device) const;  // whether it is open on that device, which reaches it over NVLink
  void give(sys::Fd file, const std::string& why_none);
  [[nodiscard]] bool wants_file() const { return !ours_ && handle_.by == Export::file && !given_; }
  void open(int device);  // on the janitor
  std::string path_description() const;

 private:
  Status prove(int device);
  std::string why_unproven() const;
  Status map(int device, std::byte*& base);
  Status map_files(int device, std::byte*& base);
  Status import_files();

  std::shared_ptr<Devices> devices_;
  std::shared_ptr<Proofs> proofs_;
  const Handle handle_;
  const bool ours_;
  bool given_ = false;          // all files have come, or none will; worker
  std::vector<sys::Fd> files_;  // worker until given_, then the janitor
  std::string no_file_;
  Status import_failed_;
  std::vector<View> views_;                         // by device
  std::uint64_t mapped_ = 0;                        // of files: the address range for all of them
  std::vector<sys::cuda::Allocation> allocations_;  // mapped there one after the other
};

}  // namespace fairway::transport::cuda

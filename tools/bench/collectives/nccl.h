#pragma once

#include <memory>
#include <span>
#include <string>

#include "collectives.h"

namespace fairway::collectives::nccl {
class Library;
}

// NCCL beside our collectives on GPU memory, by the library's declarations of it.
namespace fairway::tool::bench {

// "2.28.9", of that library, else of the one that FAIRWAY_NCCL_LIBRARY names, else of the loader's libnccl.so.2. The
// error says how to name one.
Result<std::string> nccl_version(const std::string& library);
[[nodiscard]] bool nccl_does(const CollectiveWork& work);

// A rank of a communicator of NCCL's, as a program makes one: its calls wait for the other ranks, without a deadline.
// A resource of one thread, with its GPU's context.
class NcclRank {
 public:
  // Collective, among the ranks of `world`.
  static Result<std::unique_ptr<NcclRank>> open(Communicator& world, const std::string& library);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  Status enqueue(const Collective& call, void* stream);
  Status enqueue(std::span<const StreamMessage> group, void* stream);

 private:
  NcclRank(std::shared_ptr<const collectives::nccl::Library> library, int rank, int size)
      : library_(std::move(library)), rank_(rank), size_(size) {}

  const std::shared_ptr<const collectives::nccl::Library> library_;
  const int rank_, size_;
  void* comm_ = nullptr;
};

}  // namespace fairway::tool::bench

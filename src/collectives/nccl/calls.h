#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/gpu/group.h"
#include "collectives/nccl/group.h"
#include "collectives/nccl/operation.h"
#include "collectives/nccl/watch.h"
#include "collectives/nccl/way_table.h"

namespace fairway::collectives {

// Which operations on streams NCCL does for a communicator, by the choice that all its ranks have made when it was
// opened, and those operations. Owner: GpuCalls; the GPUs' group outlives it. One thread.
class NcclCalls {
 public:
  struct Ranks {  // of the communicator, on host memory; all are collective
    int rank = 0, size = 1;
    Timeout timeout{0};
    std::function<Status(const Collective&)> run;
    std::function<Status(const Status&)> agree;  // every rank says how it went: the first that failed
    std::function<std::string(int)> name;
  };
  // Collective. Without NCCL it takes nothing, and reason() says why; an error where the options want it always, or
  // differ between ranks.
  static Result<std::unique_ptr<NcclCalls>> open(const Ranks& ranks, const GpuGroup& on, const GpuOptions& options);

  // The same on every rank.
  [[nodiscard]] bool takes(const Collective& call, bool captured) const;
  [[nodiscard]] bool may_take(const Collective& call) const { return group_ != nullptr && nccl::can(call); }
  [[nodiscard]] std::string explain(const Collective& call, bool captured) const;
  // As GpuGroup::launch(), of what takes() has accepted. After an error that is not of a capture no rank's operation
  // ends well.
  Status enqueue(GpuGroup& on, const Collective& call, std::uint64_t digest, std::uint64_t number, Timeout timeout,
                 void* stream, bool captured);
  [[nodiscard]] std::optional<NcclFailure> failure() const { return watch_ ? watch_->failure() : std::nullopt; }

  // What the table of these ranks is kept for, and where. Of rank 0.
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] const std::string& table_path() const { return path_; }
  // Why no NCCL could be used by a communicator that wants it; ok: all ranks have it.
  [[nodiscard]] const Status& has_nccl() const { return has_nccl_; }
  [[nodiscard]] const GpuOptions& options() const { return options_; }

 private:
  struct Offer;

  NcclCalls(const GpuOptions& options, int size) : options_(options), size_(size) {}
  [[nodiscard]] GpuWay way() const { return options_.guarded ? GpuWay::guarded : GpuWay::bare; }
  Status compare(const Ranks& ranks, const std::vector<Offer>& offers);
  Status share_table(const Ranks& ranks);
  Status make_group(const Ranks& ranks, const GpuGroup& on, std::shared_ptr<const nccl::Library> library);

  const GpuOptions options_;
  const int size_;  // ranks
  Status has_nccl_;
  std::string key_, path_, reason_, nccl_;
  WayTable table_;
  std::shared_ptr<NcclGroup> group_;  // null: it takes nothing
  std::unique_ptr<NcclWatch> watch_;
};

}  // namespace fairway::collectives

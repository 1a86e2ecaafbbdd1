#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/device.h"
#include "transport/fabric/calls.h"
#include "transport/fabric/choice.h"

namespace fairway::transport::fabric {

// One of libfabric's domains, a NIC or what a provider takes for one, as one worker uses it. A resource; immutable once
// opened. Registering memory with it is for any thread, all else for the worker.
class Domain {
 public:
  static Result<std::unique_ptr<Domain>> open(std::shared_ptr<const Calls> calls, const fi_info& info, const Wish& wish,
                                              std::size_t index);

  [[nodiscard]] const Calls& calls() const { return *calls_; }
  [[nodiscard]] std::string text(long result) const { return calls_->library->text(result); }
  [[nodiscard]] fi_info& info() const { return *info_; }
  [[nodiscard]] fid_fabric* fabric() const { return fabric_.get(); }
  [[nodiscard]] fid_domain* get() const { return domain_.get(); }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] std::size_t index() const { return index_; }  // among the transport's
  [[nodiscard]] DomainAddress address() const;

  [[nodiscard]] bool has_mode(int bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }
  [[nodiscard]] std::uint64_t operation_flags() const { return wish_.delivery ? FI_DELIVERY_COMPLETE : 0; }
  [[nodiscard]] bool moves_gpu_memory() const { return wish_.gpus; }
  [[nodiscard]] std::uint64_t most_bytes() const;  // of one operation
  [[nodiscard]] std::size_t most_gathers() const;
  [[nodiscard]] std::size_t most_places() const;  // at the target, of one operation
  [[nodiscard]] bool has_immediates() const { return wish_.rma && writes_carry_data(*info_) && !loses_messages(); }
  // The provider has a connection below each end, makes another where one broke, and says nothing of the messages that
  // went with it, not even where they are said to be delivered (docs/GOTCHAS.md). What one end sends arrives in order,
  // so numbers show what is missing; and what is not heard of by the peer's own word is not done.
  [[nodiscard]] bool loses_messages() const { return loses_messages_; }
  // The provider has the peer's CPU reach into this process (shm), so that closing an end does not stop it.
  [[nodiscard]] bool peers_reach_in() const;

  // A key that no peer can guess, where keys are ours to choose; random bits in, bits of the right size out.
  [[nodiscard]] std::uint64_t requested_key(std::uint64_t random) const;

 private:
  Domain(std::shared_ptr<const Calls> calls, const fi_info& info, const Wish& wish, std::size_t index);
  void describe();

  const std::shared_ptr<const Calls> calls_;
  const Wish wish_;
  const std::size_t index_;
  Info info_;
  bool loses_messages_ = false;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Device device_;
};

// The domains that the options allow and that open; why there is none.
Result<std::vector<std::unique_ptr<Domain>>> open_domains(const FabricOptions& options);

}  // namespace fairway::transport::fabric

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/fabric/calls.h"
#include "transport/fabric/choice.h"
#include "transport/transport.h"

namespace fairway::transport::fabric {

// One of libfabric's domains (a NIC), as one worker uses it. A resource; immutable once opened. Any thread may register
// memory with it; the rest is for the worker.
class Domain {
 public:
  static Result<std::unique_ptr<Domain>> open(std::shared_ptr<const Calls> calls, const fi_info& info,
                                              const HintSet& wanted, std::size_t index);

  [[nodiscard]] const Calls& calls() const { return *calls_; }
  [[nodiscard]] std::string text(long result) const { return calls_->library->text(result); }
  [[nodiscard]] fi_info& info() const { return *info_; }
  [[nodiscard]] fid_fabric* fabric() const { return fabric_.get(); }
  [[nodiscard]] fid_domain* get() const { return domain_.get(); }
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] std::size_t index() const { return index_; }  // among the transport's
  [[nodiscard]] DomainAddress address() const;

  [[nodiscard]] bool has_mode(int bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }
  [[nodiscard]] std::uint64_t operation_flags() const { return wanted_.delivery ? FI_DELIVERY_COMPLETE : 0; }
  [[nodiscard]] bool moves_gpu_memory() const { return wanted_.gpus; }
  [[nodiscard]] std::uint64_t most_bytes() const;  // of one operation
  [[nodiscard]] std::size_t most_gathers() const;
  [[nodiscard]] std::size_t most_places() const;  // remote segments of one operation
  [[nodiscard]] bool has_immediates() const { return wanted_.rma && writes_carry_data(*info_) && !loses_messages(); }
  // The provider silently replaces a broken connection below an endpoint, and messages are lost, even some that it
  // reported as delivered (docs/GOTCHAS.md). One endpoint's messages arrive in order, so sequence numbers reveal a
  // loss; a message is done only when the peer acknowledges it.
  [[nodiscard]] bool loses_messages() const { return loses_messages_; }
  // The peer's CPU accesses this process's memory (provider shm), so closing an endpoint does not stop it.
  [[nodiscard]] bool peer_cpu_access() const;

  // A key that no peer can guess, for providers that let the user choose keys: `random`, cut to the right size.
  [[nodiscard]] std::uint64_t requested_key(std::uint64_t random) const;

 private:
  Domain(std::shared_ptr<const Calls> calls, const fi_info& info, const HintSet& wanted, std::size_t index);
  void describe();

  const std::shared_ptr<const Calls> calls_;
  const HintSet wanted_;
  const std::size_t index_;
  Info info_;
  bool loses_messages_ = false;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Device device_;
};

// Opens the domains that the options allow; the error says why there is none.
Result<std::vector<std::unique_ptr<Domain>>> open_domains(const FabricOptions& options);

// An endpoint for one peer and one epoch, with its own completion queue and address vector, so that closing it ends all
// access of the epoch (docs/decisions/fabric.md). A resource. Owner: the transport's worker.
class Endpoint {
 public:
  // `name` identifies the endpoint to people who inspect its objects (their `context`).
  static Result<std::unique_ptr<Endpoint>> make(const Domain& domain, std::uint64_t name);

  [[nodiscard]] std::span<const std::byte> address() const { return address_; }
  Status connect(std::span<const std::byte> theirs);  // into the address vector
  [[nodiscard]] fi_addr_t peer() const { return peer_; }
  // Closes it. Not 0: the provider's error; it is open and may still use its memory: this object must stay too.
  [[nodiscard]] int close() { return fabric::close(end_); }
  [[nodiscard]] fid_ep* get() const { return end_.get(); }
  [[nodiscard]] std::size_t operations() const { return sizes_.operations; }  // the most in flight

  // Returns how many were stored; -FI_EAGAIN: none; -FI_EAVAIL: call take_error().
  ssize_t poll(std::span<fi_cq_data_entry> into) const {
    return domain_.calls().read_queue(queue_.get(), into.data(), into.size());
  }
  // The pending error, with the provider's text.
  struct Error {
    bool taken = false;  // false: there is none, or the provider does not say it
    void* context = nullptr;
    std::string text;
  };
  [[nodiscard]] Error take_error() const;

  [[nodiscard]] int fd() const { return fd_; }  // readable when there may be completions; -1: the provider has none
  [[nodiscard]] bool may_sleep() const;         // false: poll first

 private:
  struct Refusal {
    const char* call = nullptr;
    int result = 0;  // 0: none
  };
  Endpoint(const Domain& domain, Sizes sizes) : domain_(domain), sizes_(sizes) {}
  Refusal open(std::uint64_t name);
  Refusal open_queue(std::uint64_t name);
  Refusal open_end(std::uint64_t name);

  const Domain& domain_;
  const Sizes sizes_;
  Owned<fid_cq> queue_;  // destroyed after the endpoint, which is declared last
  Owned<fid_av> addresses_;
  Owned<fid_ep> end_;
  std::vector<std::byte> address_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  int fd_ = -1;
};

}  // namespace fairway::transport::fabric

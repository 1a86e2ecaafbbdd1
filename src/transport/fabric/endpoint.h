#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/fabric/domain.h"

namespace fairway::transport::fabric {

// One end for one peer and one epoch: an endpoint with a completion queue and an address vector of its own, so that
// closing it is the end of all that the epoch could still do here
// (docs/decisions/fabric-an-endpoint-for-each-epoch.md). A resource. Owner: the transport's worker.
class Endpoint {
 public:
  // `name` tells the end to who looks at its objects (their `context`).
  static Result<std::unique_ptr<Endpoint>> make(const Domain& domain, std::uint64_t name);

  [[nodiscard]] std::span<const std::byte> address() const { return address_; }
  Status connect(std::span<const std::byte> theirs);  // into the address vector
  [[nodiscard]] fi_addr_t peer() const { return peer_; }
  // Ends it. Not 0: the provider did not, for that reason, and may still use its memory.
  [[nodiscard]] int close();
  [[nodiscard]] fid_ep* get() const { return end_.get(); }
  [[nodiscard]] std::size_t operations() const { return sizes_.operations; }  // that there is room for at once

  // How many were stored; -FI_EAGAIN: none, -FI_EAVAIL: an error waits.
  ssize_t poll(std::span<fi_cq_data_entry> into) const {
    return domain_.calls().read_queue(queue_.get(), into.data(), into.size());
  }
  // The error that waits, and what the provider says of it.
  struct Error {
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
  Owned<fid_cq> queue_;  // the endpoint, declared last, goes first
  Owned<fid_av> addresses_;
  Owned<fid_ep> end_;
  std::vector<std::byte> address_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  int fd_ = -1;
};

}  // namespace fairway::transport::fabric

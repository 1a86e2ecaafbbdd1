#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/fabric/domain.h"

namespace fairway::transport::fabric {

// An endpoint for one peer and one epoch, with its own completion queue and address vector, so that closing it ends all
// access of the epoch (docs/decisions/fabric-an-endpoint-for-each-epoch.md). A resource. Owner: the transport's worker.
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

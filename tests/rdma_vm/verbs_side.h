#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

namespace fairway::rdma_vm {

struct Closer {
  void operator()(ibv_context* device) const { ibv_close_device(device); }
  void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
  void operator()(ibv_mr* region) const { ibv_dereg_mr(region); }
  void operator()(ibv_qp* pair) const { ibv_destroy_qp(pair); }
  void operator()(ibv_ah* address) const { ibv_destroy_ah(address); }
};
template <class T>
using Owned = std::unique_ptr<T, Closer>;

// One end of the wire, by libibverbs alone: an RDMA device with memory that its peer may use and one queue pair, which
// join() replaces. Of one thread.
class Side {
 public:
  static constexpr std::size_t kMemory = 64 << 10;
  static constexpr std::uint32_t kKey = 0x1234;  // of datagrams

  // The device of that number in the machine's list; null where there is none or it can not be used, with errno.
  static std::unique_ptr<Side> open(int number);

  // Gives both sides a queue pair of the kind, the first one's leading to the second one's and back. 0 or an errno.
  static int join(Side& first, Side& second, ibv_qp_type kind);

  ibv_sge piece(std::size_t offset, std::size_t size) const;
  int post_receive(std::size_t offset, std::size_t size);
  int post(ibv_send_wr request);
  // The next completion; false when none came in time.
  bool wait(ibv_wc& completion, std::chrono::milliseconds bound);

  std::vector<std::byte>& memory() { return memory_; }
  std::uint32_t remote_key() const { return region_->rkey; }
  std::uint64_t address(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(memory_.data()) + offset; }
  std::size_t mtu() const { return std::size_t{128} << port_.active_mtu; }
  std::uint32_t number() const { return pair_->qp_num; }
  ibv_ah* way() const { return way_.get(); }  // to the peer, for datagrams

 private:
  Side() = default;
  int create(ibv_qp_type kind);
  int connect(const Side& peer, ibv_qp_type kind);
  ibv_ah_attr way_to(const Side& peer) const;

  std::vector<std::byte> memory_{kMemory};
  ibv_port_attr port_{};
  ibv_gid_entry gid_{};
  Owned<ibv_context> device_;
  Owned<ibv_pd> domain_;
  Owned<ibv_cq> completions_;
  Owned<ibv_mr> region_;
  Owned<ibv_ah> way_;
  Owned<ibv_qp> pair_;
};

}  // namespace fairway::rdma_vm

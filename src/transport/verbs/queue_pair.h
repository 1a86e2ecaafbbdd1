#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/verbs/handshake.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

inline constexpr int kMostReads = 16;  // outstanding, in and out; more only uses memory of the NIC

// A queue pair with its own completion queue, which is large enough not to overflow. A resource. Owner: the transport's
// worker.
class QueuePair {
 public:
  static constexpr std::uint8_t kRnrRetries = 6;  // 7 would retry for ever

  struct Sizes {
    std::uint32_t sends = 0, receives = 0, gathers = 0;
  };
  // Options that only measurements use.
  struct Kind {
    int type = abi::kReliable;
    std::uint32_t receive_gathers = 1;
    std::optional<std::uint32_t> inline_bytes;  // unset: as much as the NIC supports, up to 256
    bool atomics = false;                       // allow atomics even if they are not atomic with the CPU
  };
  static Result<std::unique_ptr<QueuePair>> make(const Port& port, const Sizes& sizes, std::uint64_t name,
                                                 const Kind& kind);
  static Result<std::unique_ptr<QueuePair>> make(const Port& port, const Sizes& sizes, std::uint64_t name) {
    return make(port, sizes, name, {});
  }
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] std::uint32_t number() const { return pair_->number; }
  [[nodiscard]] std::uint32_t inline_bytes() const { return inline_bytes_; }

  // Modifies the state as rdma_cm asks, with the service level and traffic class of this side's options.
  Status follow(abi::QueuePairState& to, int mask);
  // The attributes for moving to RTR and then to RTS. A value.
  struct Transitions {
    abi::QueuePairState rtr{}, rts{};
    int rtr_mask = 0, rts_mask = 0;
  };
  [[nodiscard]] Transitions plan(const Endpoint& own, const Endpoint& theirs);
  // Moves it to RTS. The kernel may resolve the peer's address for up to a second (docs/GOTCHAS.md), so this may run on
  // any thread while no other uses the queue pair.
  Status apply(Transitions& steps);
  Status connect(const Endpoint& own, const Endpoint& theirs) {
    Transitions all = plan(own, theirs);
    return apply(all);
  }
  [[nodiscard]] std::uint8_t reads_out(const Endpoint& theirs) const;  // max_rd_atomic
  // Addresses a datagram to the peer of connect().
  void aim(abi::SendRequest& request) const { request.remote.datagram = {address_handle_, peer_, kDatagramKey}; }
  // Sends nothing more, and flushes queued requests. False: the NIC does not do that.
  [[nodiscard]] bool to_error();
  // Afterwards it touches no memory, as if destroyed, but faster. False: it must be destroyed instead.
  [[nodiscard]] bool to_reset();
  // Afterwards it touches no memory; of its calls only poll() may follow. Not 0: the errno; it was not destroyed.
  [[nodiscard]] int destroy();

  // Posts a chain of requests with one doorbell. If the NIC did not accept all of them: the first that it did not.
  template <class Request>
  struct Posted {
    bool all = true;
    Request* refused = nullptr;  // null: all, or the driver does not say
  };
  Posted<abi::SendRequest> post(abi::SendRequest& first) {
    abi::SendRequest* bad = nullptr;
    const bool all = pair_->context->post_send(pair_, &first, &bad) == 0;
    return {all, all ? nullptr : bad};
  }
  Posted<abi::ReceiveRequest> post(abi::ReceiveRequest& first) {
    abi::ReceiveRequest* bad = nullptr;
    const bool all = pair_->context->post_receive(pair_, &first, &bad) == 0;
    return {all, all ? nullptr : bad};
  }
  // Returns how many completions were stored; less than 0: an error.
  int poll(std::span<abi::WorkCompletion> into) {
    return queue_->context->poll(queue_, static_cast<int>(into.size()), into.data());
  }
  bool arm() { return queue_->context->request_notification(queue_, 0) == 0; }  // notify of the next completion

 private:
  static constexpr std::uint32_t kDatagramKey = 0x66617277;  // a Q_Key that users may set

  QueuePair(const Port& port, int type) : port_(port), type_(type), gid_index_(port.gid_index()) {}
  [[nodiscard]] abi::Address address_of(const PortAddress& where) const;
  Status change(abi::QueuePairState& to, int mask, const char* what);

  const Port& port_;
  const int type_;
  const std::uint8_t gid_index_;  // of the address that the peer is told; the port's may change before it connects
  abi::CompletionQueue* queue_ = nullptr;
  abi::QueuePair* pair_ = nullptr;
  abi::AddressHandle* address_handle_ = nullptr;  // of datagrams
  std::uint32_t peer_ = 0;
  std::uint32_t inline_bytes_ = 0;
};

}  // namespace fairway::transport::verbs

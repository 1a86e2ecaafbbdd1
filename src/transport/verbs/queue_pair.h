#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "transport/verbs/handshake.h"
#include "transport/verbs/port.h"

namespace fairway::transport::verbs {

// One queue pair with a completion queue of its own, so large that it cannot overflow. A resource. Owner: the
// transport's worker.
class QueuePair {
 public:
  static constexpr std::uint8_t kNotReadyRetries = 6;  // 7 would be for ever

  struct Sizes {
    std::uint32_t sends = 0, receives = 0, gathers = 0;
  };
  // What links do not ask for and measurements do.
  struct Kind {
    int type = abi::kReliable;
    std::uint32_t receive_gathers = 1;
    std::optional<std::uint32_t> inline_bytes;  // unset: as much as the NIC has, up to 256
    bool atomics = false;                       // peers may, also where they do not agree with the CPU
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

  // One step of its states, as rdma_cm says, with the traffic classes of this side's choice.
  Status follow(abi::QueuePairState& to, int mask);
  // The attributes that move it to RTR and then to RTS. A value.
  struct Transitions {
    abi::QueuePairState receiving{}, sending{};
    int receiving_mask = 0, sending_mask = 0;
  };
  [[nodiscard]] Transitions plan(const Endpoint& own, const Endpoint& theirs);
  // Moves it. The kernel may look for the peer's neighbour meanwhile, for a second (docs/GOTCHAS.md); so any thread,
  // while no other uses the queue pair.
  Status apply(Transitions& steps);
  Status connect(const Endpoint& own, const Endpoint& theirs) {
    Transitions all = plan(own, theirs);
    return apply(all);
  }
  [[nodiscard]] std::uint8_t reads_out(const Endpoint& theirs) const;  // at once
  // A datagram's destination: the peer of connect().
  void aim(abi::SendRequest& request) const { request.remote.datagram = {address_handle_, peer_, kDatagramKey}; }
  void to_error();  // nothing more is sent, and what waits is flushed
  // It touches no memory from now on, as after its end, which may take seconds longer. False: only its end is as sure.
  [[nodiscard]] bool to_reset();

  // A chain of requests by one doorbell. False: the NIC took not all of them.
  bool post(abi::SendRequest& first) {
    abi::SendRequest* bad = nullptr;
    return pair_->context->post_send(pair_, &first, &bad) == 0;
  }
  bool post(abi::ReceiveRequest& first) {
    abi::ReceiveRequest* bad = nullptr;
    return pair_->context->post_receive(pair_, &first, &bad) == 0;
  }
  // How many completions were stored; less than 0: the queue broke.
  int poll(std::span<abi::WorkCompletion> into) {
    return queue_->context->poll(queue_, static_cast<int>(into.size()), into.data());
  }
  bool arm() { return queue_->context->request_notification(queue_, 0) == 0; }  // announce the next completion

 private:
  static constexpr std::uint32_t kDatagramKey = 0x66617277;  // a Q_Key that users may set

  QueuePair(const Port& port, int type) : port_(port), type_(type) {}
  [[nodiscard]] abi::Address address_of(const PortAddress& where) const;
  Status change(abi::QueuePairState& to, int mask, const char* what);

  const Port& port_;
  const int type_;
  abi::CompletionQueue* queue_ = nullptr;
  abi::QueuePair* pair_ = nullptr;
  abi::AddressHandle* address_handle_ = nullptr;  // of datagrams
  std::uint32_t peer_ = 0;
  std::uint32_t inline_bytes_ = 0;
};

}  // namespace fairway::transport::verbs

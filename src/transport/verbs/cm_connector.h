#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/runtime.h"
#include "transport/janitor.h"
#include "transport/verbs/handshake.h"
#include "transport/verbs/library.h"

namespace fairway::transport::verbs {

// One of this side's ports, as rdma_cm identifies it.
struct CmPlace {
  std::string device;
  std::uint8_t port = 1;
  PortAddress address;
};

// A queue pair to be connected by rdma_cm.
struct CmEndpoint {
  CmPlace place;
  std::uint32_t number = 0;
  std::uint8_t reads_in = 1, reads_out = 1;
  std::uint8_t timeout = 14, retries = 6;
  // Modifies the queue pair as rdma_cm asks (RoCE; iWARP drivers do it themselves).
  std::function<Status(abi::QueuePairState&, int mask)> change;
};

// Connects queue pairs by rdma_cm: required for iWARP, optional for RoCE. The acceptor listens and accepts requests
// that carry the secret which it sent to the initiator through control; the initiator checks the acceptor's secret in
// the same way. Requests with an unknown or used secret are rejected. Nothing blocks the worker: calls that may wait
// for the other host, and destroying ids, run on the janitor. Owner: the transport's worker.
class CmConnector {
 public:
  struct Outcome {  // of the connection of `slot`
    std::uint32_t slot = 0;
    Status status;  // ok: connected; reported at the initiator only
  };

  // Wakes `task`, the worker's.
  static Result<std::unique_ptr<CmConnector>> open(std::shared_ptr<const CmLibrary> library, Runtime& runtime,
                                                   Task& task);
  ~CmConnector();
  CmConnector(const CmConnector&) = delete;
  CmConnector& operator=(const CmConnector&) = delete;

  [[nodiscard]] int fd() const { return channel_->fd; }

  // Listens at that place, from the first call on. Returns the TCP port (RoCE: a port of rdma_cm's own space).
  Result<std::uint16_t> listen(const CmPlace& place);
  // Acceptor: accepts one request with the secret `ours` for this endpoint, and answers with `theirs`.
  void expect(std::uint32_t slot, CmEndpoint endpoint, const Secret& ours, const Secret& theirs);
  // Initiator: connects to the other side with the secret `theirs`; its answer must carry `ours`. -> Outcome
  Status dial(std::uint32_t slot, CmEndpoint endpoint, const PortAddress& to, const Secret& ours, const Secret& theirs);
  [[nodiscard]] bool is_connecting(std::uint32_t slot) const;
  [[nodiscard]] bool any_connecting() const;
  // Ends the connection. Destroys `rest`, which has its queue pair, and then the rdma_cm id, once nothing uses them.
  void forget(std::uint32_t slot, std::shared_ptr<void> rest);

  // Errors from the janitor, which no descriptor announces: poll first.
  [[nodiscard]] bool has_refusals() const;
  // New outcomes, valid until the next call. A system call.
  std::span<const Outcome> poll();

 private:
  struct Call;
  using CallOf = std::shared_ptr<Call>;

  CmConnector(std::shared_ptr<const CmLibrary> library, Runtime& runtime, Task& task)
      : library_(std::move(library)), task_(task), janitor_(runtime, "fairway-rdma-cm") {}
  bool take_event();
  CallOf take_request(const abi::CmEvent& event);
  void take(Call& call, const abi::CmEvent& event);
  void start_connect(Call& call);
  static abi::CmParameters parameters(const Call& call);  // borrow from `call`
  Status move_to_rts(Call& call);
  void finish(Call& call, const std::string& why);
  void dispose(CallOf call, std::shared_ptr<void> rest);
  Status refusal(const char* what) const;

  const std::shared_ptr<const CmLibrary> library_;
  Task& task_;
  abi::CmChannel* channel_ = nullptr;
  std::vector<CallOf> listeners_;
  std::unordered_map<std::uint32_t, CallOf> calls_;  // by slot
  std::vector<Outcome> outcomes_;
  Janitor janitor_;
};

// The port of each of this host's addresses, by rdma_cm: the GIDs of an iWARP port contain only its MAC address.
std::vector<CmPlace> find_places(const CmLibrary& library, std::span<const InterfaceAddress> addresses);

}  // namespace fairway::transport::verbs

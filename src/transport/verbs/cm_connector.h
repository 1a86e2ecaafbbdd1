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
#include "transport/verbs/cm_library.h"
#include "transport/verbs/handshake.h"

namespace fairway::transport::verbs {

// One of this side's ports, as rdma_cm knows it.
struct CmPlace {
  std::string device;
  std::uint8_t port = 1;
  PortAddress address;
};

// What rdma_cm has to know of a queue pair that it connects.
struct CmParty {
  CmPlace place;
  std::uint32_t number = 0;
  std::uint8_t reads_in = 1, reads_out = 1;
  std::uint8_t timeout = 14, retries = 6;
  // Changes it as rdma_cm says, where the device leaves that to its user.
  std::function<Status(abi::QueuePairState&, int mask)> change;
};

// Connects queue pairs by rdma_cm: iWARP has no other way, RoCE may. An acceptor listens at its port and takes who says
// the secret that it told the initiator through control; the initiator takes whose answer has its own. Who says no
// secret that is expected, or says it again, is turned away. Nothing here waits: what may is the janitor's, the calls
// that reach for the other host and the ends of those that are over. Belongs to the transport's worker.
class CmConnector {
 public:
  struct Outcome {  // of the call of `slot`
    std::uint32_t slot = 0;
    Status over;  // ok: it is connected, as its initiator hears
  };

  // `task` is the worker's, to be woken.
  static Result<std::unique_ptr<CmConnector>> open(std::shared_ptr<const CmLibrary> library, Runtime& runtime,
                                                   Task& task);
  ~CmConnector();
  CmConnector(const CmConnector&) = delete;
  CmConnector& operator=(const CmConnector&) = delete;

  [[nodiscard]] int fd() const { return channel_->fd; }

  // The TCP port (of RoCE, one of rdma_cm's own) that callers of that place come to. Listens from the first time on.
  Result<std::uint16_t> listen(const CmPlace& place);
  // One call to that place is for this party when it says `ours`; it is answered with `theirs`.
  void expect(std::uint32_t slot, CmParty party, const Secret& ours, const Secret& theirs);
  // Calls the other side's place, which says `ours` where it is said `theirs`. -> Outcome
  Status dial(std::uint32_t slot, CmParty party, const PortAddress& to, const Secret& ours, const Secret& theirs);
  [[nodiscard]] bool is_connecting(std::uint32_t slot) const;
  [[nodiscard]] bool any_connecting() const;
  // The call is over; `rest`, its queue pair among it, is destroyed before rdma_cm's end of it, once nothing uses it.
  void forget(std::uint32_t slot, std::shared_ptr<void> rest);

  // Of the janitor, which no descriptor announces: poll first.
  [[nodiscard]] bool has_refusals() const;
  // What has come; a system call. Valid until the next one.
  std::span<const Outcome> poll();

 private:
  struct Call;
  using CallOf = std::shared_ptr<Call>;

  CmConnector(std::shared_ptr<const CmLibrary> library, Runtime& runtime, Task& task)
      : library_(std::move(library)), task_(task), janitor_(runtime, "fairway-rdma-cm") {}
  bool take_event();
  CallOf take_request(const abi::CmEvent& event);
  void take(Call& call, const abi::CmEvent& event);
  void reach_out(Call& call);
  static abi::CmParameters parameters(const Call& call);  // they point into it
  Status ready(Call& call);
  void over(Call& call, const std::string& why);
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

// Which of this host's addresses lead to which port, as rdma_cm has it: an iWARP port's own tell no more than its MAC.
std::vector<CmPlace> find_places(const CmLibrary& library, std::span<const InterfaceAddress> addresses);

}  // namespace fairway::transport::verbs

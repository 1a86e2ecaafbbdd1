#include "transport/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fairway::transport::verbs {
namespace {

constexpr std::uint8_t kNotReadyRetries = 6;  // 7 would be for ever
constexpr std::uint8_t kNotReadyTimer = 12;   // 0.64 ms; credits keep it from being needed
constexpr std::uint8_t kMostReads = 16;       // at once; more only takes the NIC's memory

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(const Port& port, const Sizes& sizes, std::uint64_t name) {
  const Library& library = port.library();
  std::unique_ptr<QueuePair> made(new QueuePair(port));
  const int entries = static_cast<int>(sizes.sends + sizes.receives);
  made->queue_ = library.create_queue(port.context(), entries, nullptr, port.channel(), 0);
  if (made->queue_ == nullptr) return port.refusal("ibv_create_cq", errno);
  for (const std::uint32_t inline_bytes : {256u, 128u, 64u, 0u}) {  // what a NIC has is told by no query
    abi::QueuePairOptions options{};
    options.user = reinterpret_cast<void*>(name);
    options.send_queue = options.receive_queue = made->queue_;
    options.limits = {sizes.sends, sizes.receives, sizes.gathers, 1, inline_bytes};
    options.type = abi::kReliable;
    made->pair_ = library.create_pair(port.domain(), &options);
    if (made->pair_ == nullptr) continue;
    made->inline_bytes_ = std::min(options.limits.inline_bytes, inline_bytes);
    break;
  }
  if (made->pair_ == nullptr) return port.refusal("ibv_create_qp", errno);
  abi::QueuePairState state{};
  state.state = abi::kInit;
  state.port = port.number();
  state.pkey_index = port.pkey_index();
  state.access = abi::kRemoteWrite | abi::kRemoteRead;  // each region says what of it is allowed
  if (port.device().capabilities.atomics_by_cpu) state.access |= abi::kRemoteAtomic;
  const int mask = abi::kMaskState | abi::kMaskPkey | abi::kMaskPort | abi::kMaskAccess;
  if (Status status = made->change(state, mask, "to INIT"); !status) return status;
  return made;
}

QueuePair::~QueuePair() {
  if (pair_ != nullptr) port_.library().destroy_pair(pair_);
  if (queue_ != nullptr) port_.library().destroy_queue(queue_);
}

Status QueuePair::change(abi::QueuePairState& to, int mask, const char* what) {
  const int error = port_.library().modify_pair(pair_, &to, mask);
  return error == 0 ? Status() : port_.refusal(what, error);
}

Status QueuePair::connect(const Endpoint& own, const Endpoint& theirs) {
  const PortAddress& where = theirs.port;
  abi::QueuePairState state{};
  state.state = abi::kReadyToReceive;
  state.mtu = std::min(own.mtu, theirs.mtu);
  state.peer_number = theirs.number;
  state.receive_psn = theirs.first_psn;
  state.reads_in = own.reads;
  state.not_ready_timer = kNotReadyTimer;
  state.address.port = port_.number();
  const RdmaOptions& options = port_.options();
  state.address.service_level = static_cast<std::uint8_t>(options.service_level);
  if (where.fabric == Fabric::roce) {
    state.address.is_global = 1;
    std::memcpy(state.address.route.gid, where.gid.data(), where.gid.size());
    state.address.route.gid_index = port_.gid_index();
    state.address.route.hop_limit = static_cast<std::uint8_t>(options.hop_limit);
    state.address.route.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  } else {
    state.address.lid = where.lid;
  }
  int mask = abi::kMaskState | abi::kMaskAddress | abi::kMaskMtu | abi::kMaskPeer | abi::kMaskReceivePsn |
             abi::kMaskReadsIn | abi::kMaskNotReadyTimer;
  if (Status status = change(state, mask, "to RTR"); !status) return status;
  state.state = abi::kReadyToSend;
  state.send_psn = own.first_psn;
  state.timeout = static_cast<std::uint8_t>(options.timeout);
  state.retries = static_cast<std::uint8_t>(options.retries);
  state.not_ready_retries = kNotReadyRetries;
  const int most = std::clamp(port_.limits().reads_out, 1, int{kMostReads});
  state.reads_out = static_cast<std::uint8_t>(std::min<int>(most, theirs.reads));
  mask = abi::kMaskState | abi::kMaskTimeout | abi::kMaskRetries | abi::kMaskNotReadyRetries | abi::kMaskSendPsn |
         abi::kMaskReadsOut;
  return change(state, mask, "to RTS");
}

void QueuePair::to_error() {
  abi::QueuePairState state{};
  state.state = abi::kError;
  static_cast<void>(port_.library().modify_pair(pair_, &state, abi::kMaskState));
}

}  // namespace fairway::transport::verbs

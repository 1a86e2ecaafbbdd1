#include "transport/verbs/queue_pair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace fairway::transport::verbs {
namespace {

constexpr std::uint8_t kMinRnrTimer = 12;  // 0.64 ms; rarely used, since credits prevent RNR
// Soft-RoCE sends the responses of all reads at once; with retransmits they overflow the receiving core's packet queue
// (docs/GOTCHAS.md).
constexpr int kMostSoftwareReads = 4;

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::make(const Port& port, const Sizes& sizes, std::uint64_t name,
                                                   const Kind& kind) {
  const Library& library = port.library();
  std::unique_ptr<QueuePair> made(new QueuePair(port, kind.type));
  const int entries = static_cast<int>(sizes.sends + sizes.receives);
  made->queue_ = library.create_queue(port.context(), entries, nullptr, port.channel(), 0);
  if (made->queue_ == nullptr) return port.refusal("ibv_create_cq", errno);
  const std::array<std::uint32_t, 4> usual{256, 128, 64, 0};  // no query tells what the NIC supports
  const auto tries = kind.inline_bytes ? std::span(&*kind.inline_bytes, 1) : std::span<const std::uint32_t>(usual);
  for (const std::uint32_t inline_bytes : tries) {
    abi::QueuePairOptions options{};
    options.user = reinterpret_cast<void*>(name);
    options.send_queue = options.receive_queue = made->queue_;
    options.limits = {sizes.sends, sizes.receives, sizes.gathers, kind.receive_gathers, inline_bytes};
    options.type = kind.type;
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
  state.qkey = kDatagramKey;
  state.access = abi::kRemoteWrite | abi::kRemoteRead;  // each region restricts it
  if (kind.atomics || port.has_atomics()) state.access |= abi::kRemoteAtomic;
  const int place = port.iwarp() ? 0 : abi::kMaskPkey | abi::kMaskPort;
  const int mask = abi::kMaskState | place | (kind.type == abi::kDatagram ? abi::kMaskQkey : abi::kMaskAccess);
  if (Status status = made->change(state, mask, "to INIT"); !status) return status;
  return made;
}

QueuePair::~QueuePair() {
  static_cast<void>(destroy());
  if (queue_ != nullptr) port_.library().destroy_queue(queue_);
  if (address_handle_ != nullptr) port_.library().destroy_address_handle(address_handle_);
}

Status QueuePair::change(abi::QueuePairState& to, int mask, const char* what) {
  const int error = port_.library().modify_pair(pair_, &to, mask);
  return error == 0 ? Status() : port_.refusal(what, error);
}

Status QueuePair::follow(abi::QueuePairState& to, int mask) {
  const RdmaOptions& options = port_.options();
  to.address.service_level = static_cast<std::uint8_t>(options.service_level);
  to.address.route.hop_limit = static_cast<std::uint8_t>(options.hop_limit);
  to.address.route.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  if ((mask & abi::kMaskMinRnrTimer) != 0) to.min_rnr_timer = kMinRnrTimer;  // rdma_cm has 0, which is 655 ms
  return change(to, mask, "by rdma_cm");
}

abi::Address QueuePair::address_of(const PortAddress& where) const {
  abi::Address address{};
  address.port = port_.number();
  const RdmaOptions& options = port_.options();
  address.service_level = static_cast<std::uint8_t>(options.service_level);
  const bool global = where.global || port_.address().global;
  if (where.fabric == Fabric::infiniband) address.lid = where.lid;
  if (where.fabric == Fabric::roce || global) {
    address.is_global = 1;
    std::memcpy(address.route.gid, where.gid.data(), where.gid.size());
    address.route.gid_index = gid_index_;
    address.route.hop_limit = static_cast<std::uint8_t>(options.hop_limit);
    address.route.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  }
  return address;
}

QueuePair::Transitions QueuePair::plan(const Endpoint& own, const Endpoint& theirs) {
  const RdmaOptions& options = port_.options();
  const bool reliable = type_ == abi::kReliable;
  Transitions all;
  abi::QueuePairState& state = all.rtr;
  state.state = abi::kReadyToReceive;
  state.mtu = std::min(own.mtu, theirs.mtu);
  state.peer_number = peer_ = theirs.number;
  state.receive_psn = theirs.first_psn;
  state.reads_in = own.reads;
  state.min_rnr_timer = kMinRnrTimer;
  state.address = address_of(theirs.port);
  all.rtr_mask = abi::kMaskState;
  if (type_ != abi::kDatagram)
    all.rtr_mask |= abi::kMaskAddress | abi::kMaskMtu | abi::kMaskPeer | abi::kMaskReceivePsn;
  if (reliable) all.rtr_mask |= abi::kMaskReadsIn | abi::kMaskMinRnrTimer;
  all.rts = state;
  all.rts.state = abi::kReadyToSend;
  all.rts.send_psn = own.first_psn;
  all.rts.timeout = static_cast<std::uint8_t>(options.timeout);
  all.rts.retries = static_cast<std::uint8_t>(options.retries);
  all.rts.rnr_retries = kRnrRetries;
  all.rts.reads_out = reads_out(theirs);
  all.rts_mask = abi::kMaskState | abi::kMaskSendPsn;
  if (reliable) all.rts_mask |= abi::kMaskTimeout | abi::kMaskRetries | abi::kMaskRnrRetries | abi::kMaskReadsOut;
  return all;
}

Status QueuePair::apply(Transitions& steps) {
  if (Status status = change(steps.rtr, steps.rtr_mask, "to RTR"); !status) return status;
  if (Status status = change(steps.rts, steps.rts_mask, "to RTS"); !status || type_ != abi::kDatagram) return status;
  address_handle_ = port_.library().create_address_handle(port_.domain(), &steps.rts.address);
  return address_handle_ != nullptr ? Status() : port_.refusal("ibv_create_ah", errno);
}

std::uint8_t QueuePair::reads_out(const Endpoint& theirs) const {
  const bool soft_roce = port_.software() && !port_.iwarp();
  const int most = std::clamp(port_.limits().reads_out, 1, soft_roce ? kMostSoftwareReads : kMostReads);
  return static_cast<std::uint8_t>(std::min<int>(most, theirs.reads));
}

bool QueuePair::to_error() {
  abi::QueuePairState state{};
  state.state = abi::kError;
  return port_.library().modify_pair(pair_, &state, abi::kMaskState) == 0;
}

bool QueuePair::to_reset() {
  if (port_.iwarp()) return false;  // iWARP queue pairs cannot be reset
  abi::QueuePairState state{};
  state.state = abi::kReset;
  return port_.library().modify_pair(pair_, &state, abi::kMaskState) == 0;
}

int QueuePair::destroy() {
  const int error = pair_ == nullptr ? 0 : port_.library().destroy_pair(pair_);
  if (error == 0) pair_ = nullptr;
  return error;
}

}  // namespace fairway::transport::verbs

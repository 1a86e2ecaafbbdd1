#include "transport/verbs/cm_connector.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>

#include "sys/address.h"
#include "transport/verbs/queue_pair.h"

namespace fairway::transport::verbs {
namespace {

constexpr int kResolveTimeout_ms = 4000;  // soft-RoCE took 2 s to resolve its first neighbour
constexpr int kBacklog = 64;
constexpr int kMostEvents = 64;  // of one poll

Result<sys::SocketAddress> socket_address(const PortAddress& at, std::uint16_t port) {
  return sys::numeric_address({text_of(at), port});
}

bool is_at(const abi::CmId& id, const CmPlace& place) {
  return id.context != nullptr && place.device == id.context->device->name && place.port == id.port;
}

bool is_iwarp(const abi::CmId& id) {
  return id.context->device->transport_type == abi::kIwarp;
}

Gid gid_of(const sys::SocketAddress& at) {
  Gid gid{};
  if (at.family() == AF_INET) {
    gid[10] = gid[11] = std::byte{0xff};
    std::memcpy(&gid[12], &reinterpret_cast<const sockaddr_in*>(at.data())->sin_addr, 4);
  } else {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(at.data())->sin6_addr, gid.size());
  }
  return gid;
}

bool carries(const abi::CmEvent& event, const Secret& secret) {  // its private data may be padded
  return event.from.bytes != nullptr && event.from.size >= secret.size() &&
         std::memcmp(event.from.bytes, secret.data(), secret.size()) == 0;
}

}  // namespace

// One connection or listener. Shared with the janitor, which owns it once it is forgotten.
struct CmConnector::Call {
  enum class State : std::uint8_t { listening, expecting, resolving, connecting, accepted, connected, over };
  State state = State::expecting;
  std::atomic<bool> forgotten{false};
  std::uint32_t slot = 0;
  CmEndpoint endpoint;
  Secret ours{}, theirs{};
  std::uint16_t port = 0;  // of a listener
  abi::CmId* id = nullptr;
  std::atomic<int> refused{0};  // errno of rdma_connect() on the janitor
};

abi::CmParameters CmConnector::parameters(const Call& call) {
  abi::CmParameters with{};
  with.bytes = call.theirs.data();
  with.size = static_cast<std::uint8_t>(call.theirs.size());
  with.reads_in = call.endpoint.reads_in;
  with.reads_out = call.endpoint.reads_out;
  with.retries = call.endpoint.retries;
  with.rnr_retries = QueuePair::kRnrRetries;
  with.number = call.endpoint.number;
  return with;
}

Status CmConnector::refusal(const char* what) const {
  return {ErrorCode::link_failed, std::string("verbs: ") + what + ": " + system_text(errno)};
}

Result<std::unique_ptr<CmConnector>> CmConnector::open(std::shared_ptr<const CmLibrary> library, Runtime& runtime,
                                                       Task& task) {
  std::unique_ptr<CmConnector> made(new CmConnector(std::move(library), runtime, task));
  errno = 0;
  made->channel_ = made->library_->create_channel();
  if (made->channel_ == nullptr)
    return Status(ErrorCode::unsupported, "verbs: rdma_create_event_channel: " + system_text(errno) +
                                              ": load rdma_ucm, and let this user open /dev/infiniband/rdma_cm");
  const int fd = made->channel_->fd;
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return made->refusal("fcntl");
  return made;
}

CmConnector::~CmConnector() {
  for (auto& [slot, call] : calls_) dispose(std::move(call), {});
  for (CallOf& each : listeners_) dispose(std::move(each), {});
  janitor_.finish();
  if (channel_ != nullptr) library_->destroy_channel(channel_);
}

Result<std::uint16_t> CmConnector::listen(const CmPlace& place) {
  const auto found = std::find_if(listeners_.begin(), listeners_.end(), [&](const CallOf& each) {
    return each->endpoint.place.device == place.device && each->endpoint.place.port == place.port;
  });
  if (found != listeners_.end()) return (*found)->port;
  const auto at = socket_address(place.address, 0);
  if (!at) return at.status();
  auto call = std::make_shared<Call>();
  call->state = Call::State::listening;
  call->endpoint.place = place;
  Status status = library_->create_id(channel_, &call->id, call.get(), abi::kSpaceTcp) == 0 &&
                          library_->bind(call->id, at->data()) == 0
                      ? Status()
                      : refusal(("rdma_bind_addr " + text_of(place.address)).c_str());
  if (status && !is_at(*call->id, place))
    status = {ErrorCode::link_failed,
              "verbs: rdma_cm finds " + text_of(place.address) + " at another device than " + place.device};
  if (status && library_->listen(call->id, kBacklog) != 0) status = refusal("rdma_listen");
  if (!status) {
    dispose(std::move(call), {});
    return status;
  }
  const std::uint16_t port = library_->source_port(call->id);
  call->port = std::endian::native == std::endian::little ? __builtin_bswap16(port) : port;
  return listeners_.emplace_back(std::move(call))->port;
}

void CmConnector::expect(std::uint32_t slot, CmEndpoint endpoint, const Secret& ours, const Secret& theirs) {
  auto call = std::make_shared<Call>();
  call->slot = slot;
  call->endpoint = std::move(endpoint);
  call->ours = ours;
  call->theirs = theirs;
  calls_[slot] = std::move(call);
}

Status CmConnector::dial(std::uint32_t slot, CmEndpoint endpoint, const PortAddress& to, const Secret& ours,
                         const Secret& theirs) {
  const auto from = socket_address(endpoint.place.address, 0), there = socket_address(to, to.cm_port);
  if (!from) return from.status();
  if (!there) return there.status();
  expect(slot, std::move(endpoint), ours, theirs);
  Call& call = *calls_[slot];
  call.state = Call::State::resolving;
  if (library_->create_id(channel_, &call.id, &call, abi::kSpaceTcp) != 0) return refusal("rdma_create_id");
  if (library_->resolve_address(call.id, from->data(), there->data(), kResolveTimeout_ms) != 0)
    return refusal("rdma_resolve_addr");
  return {};
}

bool CmConnector::is_connecting(std::uint32_t slot) const {
  const auto found = calls_.find(slot);
  return found != calls_.end() && found->second->state < Call::State::accepted;
}

bool CmConnector::any_connecting() const {
  return std::any_of(calls_.begin(), calls_.end(), [this](const auto& each) { return is_connecting(each.first); });
}

void CmConnector::forget(std::uint32_t slot, std::shared_ptr<void> rest) {
  const auto found = calls_.find(slot);
  if (found == calls_.end()) return;
  CallOf call = std::move(found->second);
  calls_.erase(found);
  dispose(std::move(call), std::move(rest));
}

bool CmConnector::has_refusals() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const auto& each) { return each.second->refused != 0; });
}

// Runs on the janitor, after its other jobs for this connection, which may use the queue pair.
void CmConnector::dispose(CallOf call, std::shared_ptr<void> rest) {
  call->forgotten = true;
  janitor_.end([library = library_, call = std::move(call), rest = std::move(rest)]() mutable {
    rest.reset();
    if (call->id != nullptr) library->destroy_id(std::exchange(call->id, nullptr));
  });
}

std::span<const CmConnector::Outcome> CmConnector::poll() {
  outcomes_.clear();
  for (int i = 0; i < kMostEvents && take_event(); ++i) {
  }
  for (auto& [slot, call] : calls_)
    if (const int error = call->refused.exchange(0); error != 0) finish(*call, "rdma_connect: " + system_text(error));
  return outcomes_;
}

bool CmConnector::take_event() {
  abi::CmEvent* event = nullptr;
  if (library_->get_event(channel_, &event) != 0) return false;
  // May be forgotten already: it lives until its last event is acknowledged.
  Call& call = *static_cast<Call*>(event->id->user);
  CallOf unexpected;
  if (event->type == abi::kConnectRequest)
    unexpected = take_request(*event);
  else if (!call.forgotten && call.state != Call::State::listening)
    take(call, *event);
  library_->acknowledge(event);
  if (unexpected) dispose(std::move(unexpected), {});  // only now: rdma_destroy_id() waits for the acknowledgement
  return true;
}

// Accepts the request. A request that nobody expects is rejected and returned.
CmConnector::CallOf CmConnector::take_request(const abi::CmEvent& event) {
  const CmPlace& place = static_cast<const Call*>(event.listener->user)->endpoint.place;
  const auto found = std::find_if(calls_.begin(), calls_.end(), [&](const auto& each) {
    const Call& call = *each.second;
    return call.state == Call::State::expecting && call.endpoint.place.device == place.device &&
           call.endpoint.place.port == place.port && is_at(*event.id, place) && carries(event, call.ours);
  });
  if (found == calls_.end()) {
    library_->reject(event.id, nullptr, 0);
    const auto unexpected = std::make_shared<Call>();
    unexpected->id = event.id;
    return unexpected;
  }
  Call& call = *found->second;
  call.id = event.id;
  call.id->user = &call;
  call.state = Call::State::accepted;
  Status status = is_iwarp(*call.id) ? Status() : move_to_rts(call);
  abi::CmParameters with = parameters(call);
  if (status && library_->accept(call.id, &with) != 0) status = refusal("rdma_accept");
  if (!status) finish(call, status.message());
  return {};
}

void CmConnector::take(Call& call, const abi::CmEvent& event) {
  switch (event.type) {
    case abi::kAddressResolved:
      if (!is_at(*call.id, call.endpoint.place))
        finish(call,
               text_of(call.endpoint.place.address) + " belongs to another device than " + call.endpoint.place.device);
      else if (library_->resolve_route(call.id, kResolveTimeout_ms) != 0)
        finish(call, "rdma_resolve_route: " + system_text(errno));
      return;
    case abi::kRouteResolved: return start_connect(call);
    case abi::kConnectResponse:
    case abi::kEstablished: {
      if (call.state != Call::State::connecting) return;  // at the acceptor
      if (!carries(event, call.ours)) return finish(call, "the answer does not carry the peer's secret");
      if (event.type == abi::kConnectResponse) {
        if (Status status = move_to_rts(call); !status) return finish(call, status.message());
        if (library_->establish(call.id) != 0) return finish(call, "rdma_establish: " + system_text(errno));
      }
      call.state = Call::State::connected;
      outcomes_.push_back({call.slot, {}});
      return;
    }
    case abi::kAddressChange:
    case abi::kTimeWaitExit: return;
    default: finish(call, std::string(library_->event_text(event.type)) + ", " + std::to_string(event.status));
  }
}

// On the janitor: with some devices rdma_connect() returns only when the other host has answered.
void CmConnector::start_connect(Call& call) {
  call.state = Call::State::connecting;
  const Status posted = janitor_.post([library = library_, &task = task_, call = calls_[call.slot]] {
    abi::CmParameters with = parameters(*call);
    if (call->forgotten || library->connect(call->id, &with) == 0) return;
    call->refused = errno;
    task.wake();
  });
  if (!posted) finish(call, posted.message());
}

// RoCE: moves the queue pair to RTR and RTS. iWARP drivers do that themselves.
Status CmConnector::move_to_rts(Call& call) {
  for (const int to : {abi::kReadyToReceive, abi::kReadyToSend}) {
    abi::QueuePairState state{};
    state.state = to;
    int mask = 0;
    if (library_->attributes(call.id, &state, &mask) != 0) return refusal("rdma_init_qp_attr");
    state.reads_in = call.endpoint.reads_in;
    state.reads_out = call.endpoint.reads_out;
    state.timeout = call.endpoint.timeout;
    state.retries = call.endpoint.retries;
    if (Status status = call.endpoint.change(state, mask); !status) return status;
  }
  return {};
}

void CmConnector::finish(Call& call, const std::string& why) {
  if (std::exchange(call.state, Call::State::over) == Call::State::over) return;
  outcomes_.push_back({call.slot, {ErrorCode::link_failed, "verbs: rdma_cm: " + why}});
}

std::vector<CmPlace> find_places(const CmLibrary& library, std::span<const InterfaceAddress> addresses) {
  std::vector<CmPlace> found;
  abi::CmChannel* channel = library.create_channel();
  if (channel == nullptr) return found;
  for (const InterfaceAddress& each : addresses) {
    const auto at = sys::numeric_address({each.host, 0});
    abi::CmId* id = nullptr;
    if (each.loopback || !at || library.create_id(channel, &id, nullptr, abi::kSpaceTcp) != 0) continue;
    if (library.bind(id, at->data()) == 0 && id->context != nullptr) {
      CmPlace& place = found.emplace_back();
      place.device = id->context->device->name;
      place.port = id->port;
      place.address.fabric = Fabric::iwarp;
      place.address.gid = gid_of(*at);
    }
    library.destroy_id(id);
  }
  library.destroy_channel(channel);
  return found;
}

}  // namespace fairway::transport::verbs

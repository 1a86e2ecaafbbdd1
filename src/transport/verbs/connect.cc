#include <array>
#include <utility>

#include "transport/verbs/transport.h"

// The ends of planned links: queue pairs on ports.
namespace fairway::transport::verbs {
namespace {

constexpr Time kCmPoll = 10 * kMillisecond, kCmConnectingPoll = kMillisecond / 4;  // how often to poll rdma_cm's events

}  // namespace

std::vector<PortAddress> VerbsTransport::addresses() const {
  std::vector<PortAddress> all;
  for (const auto& port : ports_) all.push_back(port->address());
  return all;
}

std::vector<std::byte> VerbsTransport::describe_devices() {
  return encode(addresses());
}

Result<std::vector<PlannedPair>> VerbsTransport::pair_devices(std::span<const std::byte> initiators) {
  const auto theirs = decode_ports(initiators);
  if (!theirs) return theirs.status();
  const auto ours = addresses();
  auto pairs = pair_ports(ours, *theirs);
  if (pairs.empty())
    return Status(ErrorCode::unreachable, "verbs: no port of the initiator (" + text_of(theirs->front()) +
                                              ") can reach one of the acceptor (" + text_of(ours.front()) +
                                              "): they need the same fabric and address family");
  Status why;
  std::erase_if(pairs, [&](const PlannedPair& each) {
    if (!wants_cm(ours[each.acceptor], (*theirs)[each.initiator])) return false;
    const Status listens = listen_by_cm(*ports_[each.acceptor]);
    if (!listens) why = listens;
    return !listens;
  });
  if (pairs.empty()) return why;
  return pairs;
}

Status VerbsTransport::check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) {
  const auto theirs = decode_ports(acceptors);
  if (!theirs) return theirs.status();
  for (const PlannedPair& each : pairs)
    if (each.initiator >= ports_.size() || each.acceptor >= theirs->size() ||
        !can_connect(ports_[each.initiator]->address(), (*theirs)[each.acceptor]))
      return {ErrorCode::protocol_error, "verbs handshake: the plan pairs ports that cannot connect"};
  return {};
}

Result<std::vector<std::byte>> VerbsTransport::make_end(const Link& link) {
  Port& port = *ports_[link.device];
  if (Status status = port.refresh(); !status) return status;
  std::array<std::byte, 4> chance{};
  runtime_.rng.fill(chance);
  std::uint32_t first_psn = 0;
  for (const std::byte each : chance) first_psn = first_psn << 8 | std::to_integer<std::uint32_t>(each);
  Secret secret;
  runtime_.rng.fill(secret);
  auto lane = Lane::make(port, link.next_id(), inbox_, link.end_name(), first_psn, secret);
  if (!lane) return lane.status();
  if (ends_.size() <= link.id.slot) ends_.resize(link.id.slot + 1);
  ends_[link.id.slot].lane = std::move(*lane);
  return encode(lane_of(link)->endpoint());
}

Status VerbsTransport::connect_end(const Link& link, std::span<const std::byte> theirs) {
  const auto endpoint = decode_endpoint(theirs);
  if (!endpoint) return endpoint.status();
  Lane& lane = *lane_of(link);
  const PortAddress &own = lane.endpoint().port, &now = lane.port().address();
  if (!can_connect(own, endpoint->port))  // an address may have changed
    return {ErrorCode::link_failed,
            "verbs: " + lane.port().device().name + ": " + text_of(own) + " cannot reach " + text_of(endpoint->port)};
  if (own.gid != now.gid || own.lid != now.lid)
    return {ErrorCode::link_failed, "verbs: " + lane.port().device().name + ": its address changed from " +
                                        text_of(own) + " to " + text_of(now)};
  const auto steps = lane.connect(*endpoint);
  return steps ? move_to_rts(link, lane, *steps) : connect_by_cm(link, lane, *endpoint);
}

// On the RTS thread: the kernel may resolve the peer's address for up to a second, and other links must not wait.
Status VerbsTransport::move_to_rts(const Link& link, Lane& lane, const QueuePair::Transitions& steps) {
  const std::uint64_t transition = ++last_transition_;
  const Status led =
      rts_thread_.post([this, held = std::shared_ptr<const Port>(lane.port().hold()), &pair = lane.pair(),
                        steps = QueuePair::Transitions(steps), slot = link.id.slot, transition]() mutable {
        RtsOutcome outcome{slot, transition, pair.apply(steps)};
        held.reset();
        {
          const std::lock_guard lock(rts_mutex_);
          rts_outcomes_.push_back(std::move(outcome));
        }
        task_->wake();
      });
  if (!led) {  // there is no thread: does it here
    QueuePair::Transitions here = steps;
    return lane.pair().apply(here);
  }
  ends_[link.id.slot].transition = transition;
  ++in_transition_;
  return {};
}

void VerbsTransport::take_rts_outcomes() {
  std::vector<RtsOutcome> outcomes;
  {
    const std::lock_guard lock(rts_mutex_);
    outcomes.swap(rts_outcomes_);
  }
  in_transition_ -= static_cast<std::uint32_t>(outcomes.size());
  for (const RtsOutcome& each : outcomes) {
    if (ends_[each.slot].transition != each.transition) continue;  // dropped meanwhile
    ends_[each.slot].transition = 0;
    Link& link = links_.at(each.slot);
    each.status ? links_.on_prepared(link) : links_.on_connect_failed(link, each.status);
  }
}

// ---- by rdma_cm ----

Status VerbsTransport::connect_by_cm(const Link& link, Lane& lane, const Endpoint& theirs) {
  const auto connector = cm_connector();
  if (!connector) return connector.status();
  const Endpoint own = lane.endpoint();
  const Port& port = lane.port();
  CmEndpoint local;
  local.place = {port.context()->device->name, port.number(), own.port};
  local.number = own.number;
  local.reads_in = own.reads;
  local.reads_out = lane.pair().reads_out(theirs);
  local.timeout = static_cast<std::uint8_t>(options_.rdma.timeout);
  local.retries = static_cast<std::uint8_t>(options_.rdma.retries);
  local.change = [&pair = lane.pair()](abi::QueuePairState& to, int mask) { return pair.follow(to, mask); };
  lane.send_first(link.initiator);
  ends_[link.id.slot].by_cm = true;
  if (link.initiator && theirs.port.cm_port == 0)
    return {ErrorCode::link_failed, "verbs: the peer does not listen for rdma_cm at " + text_of(theirs.port)};
  if (link.initiator) return (*connector)->dial(link.id.slot, std::move(local), theirs.port, own.secret, theirs.secret);
  (*connector)->expect(link.id.slot, std::move(local), own.secret, theirs.secret);
  return {};
}

bool VerbsTransport::is_connecting(const Link& link) {
  return cm_ != nullptr && cm_->is_connecting(link.id.slot);
}

Result<CmConnector*> VerbsTransport::cm_connector() {
  if (cm_) return cm_.get();
  auto library = options_.cm_library;
  if (!library) {
    auto opened = CmLibrary::open();
    if (!opened) return Status(opened.status().code(), "verbs: " + opened.status().message());
    library = std::make_shared<const CmLibrary>(std::move(*opened));
  }
  auto opened = CmConnector::open(std::move(library), runtime_, *task_);
  if (!opened) return opened.status();
  if (Status status = task_->watch((*opened)->fd()); !status) return status;
  cm_ = std::move(*opened);
  return cm_.get();
}

Status VerbsTransport::listen_by_cm(Port& port) {
  const auto connector = cm_connector();
  if (!connector) return connector.status();
  const auto at = (*connector)->listen({port.context()->device->name, port.number(), port.address()});
  if (at) port.set_cm_port(*at);
  return at.status();
}

// A system call, so not in every poll; more often while queue pairs are being connected.
void VerbsTransport::poll_cm(Time now, bool woken) {
  if (!woken && now < cm_at_) return;
  cm_at_ = after(now, cm_->any_connecting() ? kCmConnectingPoll : kCmPoll);
  inbox_.system_calls.fetch_add(1, std::memory_order_relaxed);
  for (const CmConnector::Outcome& each : cm_->poll()) {
    Link& link = links_.at(each.slot);
    if (each.status)
      links_.on_connected(link);
    else if (link.state == PlannedLinks::State::up)
      lane_of(link)->fail(each.status);
    else
      links_.on_connect_failed(link, each.status);
  }
}

void VerbsTransport::drop_end(const Link& link) {
  if (link.id.slot >= ends_.size()) return;
  End& end = ends_[link.id.slot];
  std::shared_ptr<Lane> lane(std::move(end.lane));
  if (std::exchange(end.by_cm, false)) return cm_->forget(link.id.slot, std::move(lane));
  if (lane == nullptr) return;
  if (std::exchange(end.transition, 0) != 0)  // its move to RTS cannot be stopped: waits for it
    return rts_thread_.end(
        [this, held = std::shared_ptr<const Port>(lane->port().hold()), lane = std::move(lane)]() mutable {
          lane->stop();
          janitor_.end([held = std::move(held), lane = std::move(lane)]() mutable {
            lane.reset();
            held.reset();
          });
        });
  lane->stop();
  janitor_.end([lane = std::move(lane)]() mutable { lane.reset(); });
}

void VerbsTransport::fail_end(const Link& link, Status why) {
  lane_of(link)->fail(std::move(why));
}

}  // namespace fairway::transport::verbs

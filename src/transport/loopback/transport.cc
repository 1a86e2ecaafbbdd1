#include "transport/loopback/transport.h"

#include <algorithm>
#include <array>

namespace fairway::transport::loopback {

namespace {

constexpr std::uint64_t kBytesPerPoll = 1 << 20;  // copied in one step: about 100 us

}  // namespace

LoopbackTransport::LoopbackTransport(std::shared_ptr<Loopback> loopback, RegionTable& regions, Runtime& runtime)
    : LinkedTransport(loopback->wire().name(), regions, runtime),
      loopback_(std::move(loopback)),
      wire_(loopback_->wire()),
      doorbell_(std::make_shared<Doorbell>()) {
  devices_.assign(wire_.devices().begin(), wire_.devices().end());
  domain_epochs_.resize(devices_.size());
}

Status LoopbackTransport::attach(Task& task) {
  doorbell_->attach([&task] { task.wake(); });
  return LinkedTransport::attach(task);
}

void LoopbackTransport::deregister(std::uint64_t handle) {
  Deregistration& next = deregistering_.emplace_back();
  next.handle = handle;
  for (Link& link : links_) {
    if (!link.port) continue;
    link.port->cancel_memory(handle);
    if (const std::uint64_t word = link.port->touched(); word % 2 != 0) next.touches.push_back({link.id, word});
  }
}

// Waits for this side's own slices, and for what peers were moving by themselves when it began. Their other requests
// are executed on this thread, which resolves each piece in the region table; that refuses the region by now.
void LoopbackTransport::finish_deregistrations() {
  std::erase_if(deregistering_, [this](Deregistration& each) {
    std::erase_if(each.touches, [this](const Touched& touch) {
      const Link* link = find(touch.link);
      return link == nullptr || !link->port || link->port->touched() != touch.word;
    });
    if (!each.touches.empty()) return false;
    for (const Link& link : links_)
      if (link.port && link.port->uses(each.handle)) return false;
    inbox_.add(EventKind::deregistered).value = each.handle;
    return true;
  });
}

Result<std::uint64_t> LoopbackTransport::import(PeerIndex peer, const RemoteMemory& memory,
                                                std::span<const KeyBytes> keys) {
  const auto found = peers_.find(peer);
  if (found != peers_.end() && found->second.leaving) return Status(ErrorCode::not_found, "loopback: no such peer");
  return LinkedTransport::import(peer, memory, keys);
}

std::size_t LoopbackTransport::post(std::span<const Slice> slices) {
  std::array<Command, 8> batch;
  std::size_t taken = 0;
  while (taken < slices.size()) {
    Link* link = find(slices[taken].link);
    if (closed_ || !link || link->state != LinkState::up) break;
    bool full = false;
    std::size_t run = 0;  // of this link
    while (!full && taken < slices.size() && slices[taken].link == link->id) {
      std::size_t size = 0;
      while (size < batch.size() && taken + size < slices.size() && slices[taken + size].link == link->id) {
        batch[size].refusal = prepare(*link, slices[taken + size], batch[size]);
        ++size;
      }
      const std::size_t took = link->port->post(std::span(batch).first(size));
      full = took < size;
      taken += took;
      run += took;
    }
    if (run != 0) link->port->ring();
    if (full) break;
  }
  return taken;
}

AtOnce LoopbackTransport::move_now(const SmallMove& move) {
  Link* link = find(move.link);
  if (closed_ || !link || link->state != LinkState::up) return AtOnce::later;
  const auto* import = imports_.find(move.remote_handle, link->peer);
  return import == nullptr ? AtOnce::later : link->port->move_now(move, import->region);
}

AtOnce LoopbackTransport::send_now(LinkId id, std::span<const std::byte> head, std::span<const std::byte> tail) {
  Link* link = find(id);
  if (closed_ || !link || link->state != LinkState::up) return AtOnce::later;
  return link->port->send_now(head, tail);
}

std::size_t LoopbackTransport::poll(std::span<Event> events, Time now) {
  doorbell_->disarm();
  inbox_.begin_poll();
  retired_.clear();
  if (!closed_) retry_offers(now);
  std::size_t stored = inbox_.take(events);
  std::uint64_t budget = kBytesPerPoll;
  const std::size_t count = wire_.tells_ready() ? 0 : links_.size();
  if (wire_.tells_ready()) stored += poll_ready(events.subspan(stored), now, budget);
  for (std::size_t i = 0; i < count && stored < events.size(); ++i) {
    Link& link = links_[(next_link_ + i) % count];
    if (link.port) stored += poll_link(link, events.subspan(stored), now, budget);
  }
  if (count != 0) next_link_ = (next_link_ + 1) % count;
  if (!deregistering_.empty()) finish_deregistrations();
  if (peers_leaving_) forget_gone_peers();
  return stored + inbox_.take(events.subspan(stored));
}

std::size_t LoopbackTransport::poll_ready(std::span<Event> events, Time now, std::uint64_t& budget) {
  polled_.swap(ready_);
  std::size_t stored = 0;
  for (const std::uint32_t slot : polled_) {
    Link& link = links_[slot];
    if (!link.port || link.port->idle()) continue;
    const std::size_t had = ready_.size();
    if (stored < events.size()) stored += poll_link(link, events.subspan(stored), now, budget);
    if (link.port && !link.port->idle() && ready_.size() == had) ready_.push_back(slot);  // it was not polled
  }
  polled_.clear();
  return stored;
}

std::size_t LoopbackTransport::poll_link(Link& link, std::span<Event> events, Time now, std::uint64_t& budget) {
  if (link.state == LinkState::offered && !closed_ && !peers_[link.peer].failed && link.port->in_use())
    link_is_up(link);
  if (link.state == LinkState::offering || link.state == LinkState::offered || link.state == LinkState::fenced ||
      link.state == LinkState::wanted ||
      !inbox_.empty())  // queued events first: link_up comes before other events of the link
    return 0;
  const std::size_t stored = link.port->poll(events, now, budget);
  for (Event& event : events.first(stored)) {
    event.link = link.id;
    event.peer = link.peer;
    event.device = link.device;
    if (event.kind == EventKind::link_down) link.state = LinkState::down;
    if (event.kind == EventKind::fenced) {
      link.state = LinkState::fenced;
      retired_.push_back(std::move(link.port));
    }
  }
  return stored;
}

void LoopbackTransport::fence(LinkId id) {
  Link* link = find(id);
  if (!link || (link->state != LinkState::up && link->state != LinkState::down)) return;
  link->state = LinkState::fencing;
  link->port->fence();
  if (wire_.shares_fence(link->device)) end_fence_domain(*link);
}

// As if the links shared one endpoint, which is closed now. Links that came up later use a new one.
void LoopbackTransport::end_fence_domain(const Link& fenced) {
  std::uint32_t& epoch = domain_epochs_[fenced.device];
  if (fenced.domain_epoch != epoch) return;
  ++epoch;
  for (Link& link : links_)
    if (link.device == fenced.device && link.state == LinkState::up && link.domain_epoch != epoch) link.port->cut();
}

void LoopbackTransport::cancel(SliceToken token) {
  for (Link& link : links_)
    if (link.port) link.port->cancel(token);
}

bool LoopbackTransport::prepare_sleep() {
  doorbell_->arm();
  const auto is_idle = [](const Link& link) {
    return !link.port || (link.state == LinkState::offered ? !link.port->in_use() : link.port->idle());
  };
  const bool none = wire_.tells_ready()
                        ? std::all_of(ready_.begin(), ready_.end(), [&](auto slot) { return is_idle(links_[slot]); })
                        : std::all_of(links_.begin(), links_.end(), is_idle);
  const bool idle = none && inbox_.empty() && deregistering_.empty() && !peers_leaving_ && retired_.empty();
  if (!idle) doorbell_->disarm();
  return idle;
}

void LoopbackTransport::close() {
  if (closed_) return;
  closed_ = true;
  doorbell_->remove();
  inbox_.clear();
  timer_ = kNever;
  for (auto& [index, peer] : peers_) peer.leaving = peers_leaving_ = true;
  for (Link& link : links_) {
    if (!link.port) continue;
    link.port->close();
    if (link.state == LinkState::up || link.state == LinkState::down) link.state = LinkState::fencing;
  }
}

}  // namespace fairway::transport::loopback

namespace fairway::transport {

std::unique_ptr<Transport> open_loopback_transport(std::shared_ptr<Loopback> loopback, RegionTable& regions,
                                                   Runtime& runtime) {
  return std::make_unique<loopback::LoopbackTransport>(std::move(loopback), regions, runtime);
}

}  // namespace fairway::transport

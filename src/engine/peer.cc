#include "engine/peer.h"

#include <algorithm>

#include "engine/worker.h"

namespace fairway::engine {

Peer::Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
           const control::PeerInfo& info)
    : PeerContext(id, worker.services().transfers, worker.services().regions, worker.records()),
      worker_(worker),
      owner_{id, index, 0},
      session_(session),
      info_(info),
      bound_(static_cast<Time>(worker.services().options.peer_timeout.count()) * kMillisecond),
      patience_(info.by_caller, worker.now()),
      own_scratch_(worker.scratch().take()),
      records_(worker.records()),
      turns_(worker.services().transfers),
      notifier_(*this,
                {records_, worker.services().notifications, worker.services().counters, worker.services().notice,
                 [this](std::uint32_t slot) { signal(slot); }},
                worker.services().notifications.grant(worker.services().options.notifications_per_peer)),
      windows_(worker, *this),
      matcher_(*this, windows_, worker.services().options.unexpected_bytes_per_peer) {}

std::string Peer::text() const {
  return info_.name.empty() || info_.name == info_.address ? info_.address : info_.name + " (" + info_.address + ")";
}

bool Peer::has_work() const {
  return records_.waiting() > 0 || matcher_.has_work() || !retries_.empty() || !wants_request_.empty() ||
         turns_.waiting() > 0;
}

void Peer::has_more() {
  worker_.ready(id().slot);
}

void Peer::wake_at(Time time) {
  worker_.wake_at(id().slot, time);
}

void Peer::again() {
  has_more();
  worker_.again();
}

void Peer::open() {
  Hello hello;
  hello.worker = worker_.index();
  hello.event_credits = notifier_.granted();
  hello.record_bytes = worker_.record_bytes();
  hello.unexpected_bytes = worker_.services().options.unexpected_bytes_per_peer;
  hello.scratch_offset = scratch_place(0);
  for (const auto& transport : worker_.transports()) hello.transports.emplace_back(transport->name());
  hello.scratch = format_description(worker_.locals().describe(worker_.scratch().of(own_scratch_).region));
  worker_.services().tell(session_, format(hello));
}

void Peer::on_message(std::span<const std::byte> bytes) {
  if (down_) return;
  const auto type = message_type(bytes);
  if (!type) return violation("a control message of no known type");
  if (!greeted_ && *type != MessageType::hello) return violation("a control message before hello");
  switch (*type) {
    case MessageType::hello:
      if (const auto hello = parse_hello(bytes); hello && !greeted_) return on_hello(*hello);
      break;
    case MessageType::exchange:
      if (const auto exchange = parse_exchange(bytes)) {
        const std::uint16_t index = worker_.transport_index(exchange->transport);
        if (index == Worker::kNoTransport) break;
        return worker_.transport_at(index).exchange(owner_.index, exchange->bytes);
      }
      break;
    case MessageType::link_closed:
      if (const auto closed = parse_link_closed(bytes)) return on_link_closed(*closed);
      break;
    case MessageType::revoke:
      if (const auto revoke = parse_region(bytes)) {
        if (const auto imported = worker_.remotes().find(id(), revoke->region))
          (void)worker_.services().remotes.revoke({imported->slot, imported->generation});
        if (std::find(revoked_there_.begin(), revoked_there_.end(), revoke->region) == revoked_there_.end())
          revoked_there_.push_back(revoke->region);
        return wake_at(worker_.now());
      }
      break;
    case MessageType::revoked:
      if (const auto revoked = parse_region(bytes)) return worker_.removals().agreed(revoked->region, id().slot);
      break;
    case MessageType::lookup:
    case MessageType::lookup_reply: break;  // the engine's own; they do not come here
  }
  violation("a malformed control message");
}

void Peer::on_hello(const Hello& hello) {
  auto scratch = parse_description(hello.scratch);
  if (!scratch) return violation("a hello without a scratch region");
  greeted_ = true;
  owner_.worker = hello.worker;
  notifier_.greeted(hello.event_credits);
  if (hello.record_bytes < kSmallestMessage) return violation("a hello with records that are too small");
  record_bytes_ = std::min(hello.record_bytes, worker_.record_bytes());
  matcher_.greeted(hello.unexpected_bytes, record_limit());
  scratch_offset_ = hello.scratch_offset;
  Status error;
  scratch_ = worker_.remotes().import(owner_, *scratch, error);
  if (!error) refusals_.push_back(error.message());
  const auto role = info_.initiated_here ? transport::Role::initiator : transport::Role::acceptor;
  for (std::uint16_t i = 0; i < worker_.transports().size(); ++i) {
    const std::string name(worker_.transport_at(i).name());
    if (std::find(hello.transports.begin(), hello.transports.end(), name) == hello.transports.end()) {
      refusals_.push_back(name + ": the peer does not have it");
      continue;
    }
    connecting_.push_back(i);
  }
  for (const std::uint16_t i : std::vector(connecting_))  // all of them known first: one may fail at once
    if (const Status status = worker_.transport_at(i).connect(owner_.index, role); !status)
      on_connect_failed(i, status);
  for (const std::string& name : hello.transports)
    if (worker_.transport_index(name) == Worker::kNoTransport)
      refusals_.push_back(name + ": this engine does not have it");
  no_link_since_ = since_now();
  wake_at(worker_.now());
  settle();
}

void Peer::on_connect_failed(std::uint16_t transport, const Status& reason) {
  std::erase(connecting_, transport);
  refusals_.push_back(std::string(worker_.transport_at(transport).name()) + ": " + reason.message());
  settle();
}

void Peer::settle() {
  if (settled_ || !connecting_.empty() || any_link_up() || !links_.empty()) return;
  settled_ = true;
  std::string reasons;
  for (const std::string& refusal : refusals_) reasons += (reasons.empty() ? "" : "; ") + refusal;
  if (reasons.empty()) reasons = "neither side has a transport";
  const Status status = Status(ErrorCode::unsupported, "no transport reaches this peer: " + reasons).with_peer(text());
  worker_.services().peers.set_settled(id(), status);
  worker_.services().notice();
  fail_all(status);
}

void Peer::violation(const std::string& what) {
  if (down_) return;
  worker_.services().drop(session_, Status(ErrorCode::protocol_error, "the peer sent " + what).with_peer(text()));
}

void Peer::on_down(const Status& reason) {
  if (down_) return;
  down_ = true;
  down_reason_ = reason.peer().empty() ? reason.with_peer(text()) : reason;
  for (std::uint16_t i = 0; i < worker_.transports().size(); ++i) worker_.transport_at(i).disconnect(owner_.index);
  // What no transport holds ends now; the rest when its slices' events have come.
  worker_.slices().for_each(id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (!(entry.parked || entry.retry)) return;
    if (entry.use == SliceUse::record) worker_.records().release(entry.owner);
    if (entry.use == SliceUse::data) {
      transfer(entry.owner).in_doubt = true;
      --transfer(entry.owner).pieces_out;
    }
    worker_.slices().release(token);
  });
  retries_.clear();
  wants_request_.clear();
  records_.clear();
  fail_all(down_reason_);
  forget_lent();
  end_landing();
  for (const RegionId region : revoking_) worker_.removals().agreed(region, id().slot);
  revoking_.clear();
  worker_.again();
}

void Peer::fail_all(const Status& reason) {
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const std::uint32_t next = transfer(slot).next_active;
    fail(slot, reason);
    slot = next;
  }
}

Time Peer::run_timers(Time now) {
  Time next = link_timers(now);
  if (now >= next_deadline_) {
    next_deadline_ = kNever;
    for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
      Transfer& t = transfer(slot);
      const std::uint32_t following = t.next_active;
      if (t.phase != Phase::draining) {
        if (t.deadline <= now)
          stop(slot, {ErrorCode::deadline_exceeded, "the request's deadline passed before it was done"});
        else
          next_deadline_ = std::min(next_deadline_, t.deadline);
      }
      slot = following;
    }
  }
  next = std::min({next, next_deadline_, staging_timer(now)});
  // Imports that the user released: gone once no slice of ours uses them.
  std::erase_if(released_, [&](RemoteRegionId id) {
    for (std::uint32_t slot = first_active_; slot != kNoSlot; slot = transfer(slot).next_active) {
      if (touches(transfer(slot).request.layout, id)) return false;
    }
    worker_.remotes().release(id);
    return true;
  });
  // Regions of the peer that it asked to be left alone: answered once no slice of ours uses them.
  std::erase_if(revoked_there_, [&](RegionId region) {
    const auto imported = worker_.remotes().find(id(), region);
    for (std::uint32_t slot = first_active_; slot != kNoSlot; slot = transfer(slot).next_active) {
      const Transfer& t = transfer(slot);
      if (t.pieces_out == 0) continue;
      if (imported && touches(t.request.layout, *imported)) {
        stop(slot, {ErrorCode::revoked, "the peer deregistered the region"});
        return false;
      }
    }
    if (imported) worker_.remotes().release(*imported);
    worker_.services().tell(session_, format(MessageType::revoked, {region}));
    return true;
  });
  if (!revoked_there_.empty() || !released_.empty()) next = std::min(next, now + kMillisecond);
  return next;
}

void Peer::revoke_at_peer(RegionId region) {
  if (down_ || !greeted_) return worker_.removals().agreed(region, id().slot);
  revoking_.push_back(region);
  worker_.services().tell(session_, format(MessageType::revoke, {region}));
}

void Peer::stop_users_of(RegionId region) {
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    Transfer& t = transfer(slot);
    const std::uint32_t next = t.next_active;
    if (touches(t.request.layout, region)) stop(slot, {ErrorCode::cancelled, "the local region was deregistered"});
    slot = next;
  }
}

void Peer::release_import(RemoteRegionId id) {
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const Transfer& t = transfer(slot);
    const std::uint32_t next = t.next_active;
    if (touches(t.request.layout, id)) stop(slot, {ErrorCode::cancelled, "the remote region was released"});
    slot = next;
  }
  (void)worker_.services().remotes.revoke({id.slot, id.generation});
  released_.push_back(id);
  wake_at(worker_.now());
}

void Peer::add_users_of(RegionId region, std::vector<TransferId>& users) const {
  const TransferTable& table = worker_.services().transfers;
  for (std::uint32_t slot = first_active_; slot != kNoSlot; slot = table[slot].next_active)
    if (touches(table[slot].request.layout, region)) users.push_back(table.id(slot));
}

void Peer::collect(Metrics& out) const {
  PeerMetrics peer;
  peer.peer = id();
  peer.name = text();
  peer.transfers_ok = transfers_ok_;
  peer.transfers_failed = transfers_failed_;
  peer.bytes = bytes_moved_;
  peer.notifications = notifier_.delivered();
  peer.in_flight = active_count_;
  const Histogram::Snapshot times = latency_.snapshot();
  peer.latency = {times.count(), times.percentile_ns(0.5), times.percentile_ns(0.9), times.percentile_ns(0.99),
                  times.max_ns()};
  out.peers.push_back(std::move(peer));
  for (const Link& link : links_)
    out.links.push_back({link.text, id(), link.state == LinkState::ready, link.bytes_out, link.slices, link.errors,
                         link.retries, link.failures, link.in_flight});
}

}  // namespace fairway::engine

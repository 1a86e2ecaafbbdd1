#include "engine/peer.h"

#include <algorithm>

#include "engine/worker.h"

namespace fairway::engine {

namespace {

constexpr std::size_t kRecordOverhead = 32;  // of put and reply beyond their payload
constexpr Time kBoundsOfAReceive = 30;       // times peer_timeout, without links

}  // namespace

Peer::Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
           const control::PeerInfo& info)
    : PeerContext(id, worker.services().transfers, worker.services().regions, worker.records()),
      worker_(worker),
      owner_{id, index, 0},
      session_(session),
      info_(info),
      links_(*this, *this,
             {worker.transports(), worker.locals(), worker.remotes(), worker.scratch(), worker.slices(),
              worker.services().runtime.rng, owner_, Patience(info.by_caller, worker.now()),
              static_cast<Time>(worker.services().options.peer_timeout.count()) * kMillisecond,
              worker.services().options.prove_paths}),
      records_(worker.records()),
      turns_(worker.services().transfers),
      notifier_(*this,
                {records_, worker.services().notifications, worker.services().counters, worker.services().notice,
                 [this](std::uint32_t slot) { signal(slot); }},
                worker.services().notifications.grant(worker.services().options.notifications_per_peer)),
      requests_(*this, {worker.slices(), worker.remotes(),
                        [this](std::uint32_t token, std::uint64_t value) { piece_done(token, value); },
                        [this](std::uint32_t slot) { advance(slot); },
                        [this](const DeviceOperation& operation) { staging_client_.checksum(operation); }}),
      service_(*this, {[this](RegionId region) { return flush(region); },
                       [this](const DeviceOperation& operation) { staging_server_.begin(operation); },
                       worker.services().notice}),
      windows_(worker, *this),
      matcher_(*this, windows_, worker.services().options.unexpected_bytes_per_peer),
      staging_client_(*this,
                      {worker.staging(), worker.remotes(), owner_,
                       [this](RegionId local, RemoteRegionId remote) { return reach_by_any(local, remote); },
                       [this](std::uint32_t slot) { activate(slot); }, [this](std::uint32_t slot) { advance(slot); },
                       [this](std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs) {
                         requests_.compare(slot, piece, ours, theirs);
                       }}),
      staging_server_(*this, {worker.staging(), worker.locals(),
                              [this](RegionId region, std::function<void(Status)> done) {
                                worker_.remove_region(region, this, std::move(done));
                              },
                              [this](const DeviceOperation& operation, ErrorCode code) {
                                service_.reply(operation.token, operation.serial, code, operation.value);
                              },
                              worker.services().notice}) {}

std::string Peer::text() const {
  return info_.name.empty() || info_.name == info_.address ? info_.address : info_.name + " (" + info_.address + ")";
}

bool Peer::has_work() const {
  return records_.waiting() > 0 || matcher_.has_work() || !retries_.empty() || requests_.has_work() ||
         turns_.waiting() > 0;
}

void Peer::has_more() {
  worker_.ready(id().slot);
}

// What arrived in that region over any transport is visible then.
Status Peer::flush(RegionId region) {
  Status status;
  for (std::uint16_t i = 0; i < worker_.transports().size() && status; ++i)
    status = worker_.transport_at(i).flush(worker_.locals().handle(region, i));
  return status;
}

// Payload of a put, a get or a send that fits a record.
std::size_t Peer::record_limit() const {
  return record_bytes_ - kRecordOverhead;
}

Time Peer::now() const {
  return worker_.now();
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
  hello.scratch_offset = worker_.scratch().offset(links_.scratch_place());
  for (const auto& transport : worker_.transports()) hello.transports.emplace_back(transport->name());
  hello.scratch = format_description(worker_.locals().describe(worker_.scratch().of(links_.scratch_place()).region));
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
      if (const auto closed = parse_link_closed(bytes)) return links_.on_link_closed(*closed);
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
  service_.greeted(record_limit());
  matcher_.greeted(hello.unexpected_bytes, record_limit());
  staging_client_.greeted(record_bytes_);
  staging_server_.greeted(record_limit());
  Status error;
  const RemoteRegionId scratch_there = worker_.remotes().import(owner_, *scratch, error);
  if (!error) links_.refused(error.message());
  links_.connect(hello.transports, info_.initiated_here ? transport::Role::initiator : transport::Role::acceptor,
                 scratch_there, hello.scratch_offset);
}

void Peer::no_link(const std::string& reasons) {
  const Status status = Status(ErrorCode::unsupported, "no transport reaches this peer: " + reasons).with_peer(text());
  worker_.services().peers.set_settled(id(), status);
  worker_.services().notice();
  fail_all(status);
}

void Peer::link_up(std::uint8_t index) {
  learn_rates(links_[index]);
  worker_.link_at(links_[index].transport, links_[index].id, *this, index);
}

void Peer::link_ready(Link& link) {
  ++route_version_;
  missed_since_ = kNever;
  worker_.services().peers.set_ready(id());
  tell_user(PeerEvent::Kind::link_up, link, {});
}

void Peer::link_lost(Link& link, bool was_ready) {
  ++route_version_;
  if (!was_ready) return;
  missed_since_ = kNever;
  tell_user(PeerEvent::Kind::link_down, link, link.down_reason.with_link(link.text));
}

void Peer::tell_user(PeerEvent::Kind kind, const Link& link, const Status& reason) {
  worker_.services().peer_events.push({kind, id(), text(), link.text, info_.incarnation, reason, {}});
  worker_.services().notice();
}

void Peer::tell(const LinkClosed& message) {
  if (!down_) worker_.services().tell(session_, format(message));
}

void Peer::end_session(const Status& reason) {
  worker_.services().drop(session_, reason);
}

void Peer::violation(const std::string& what) {
  if (down_) return;
  end_session(Status(ErrorCode::protocol_error, "the peer sent " + what).with_peer(text()));
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
  requests_.clear();
  records_.clear();
  fail_all(down_reason_);
  staging_client_.peer_gone();
  staging_server_.peer_gone();
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

Time Peer::link_timers(Time now) {
  if (down_) return kNever;
  const auto links = links_.run_timers(now);
  if (!links) return kNever;
  Time next = *links;
  if (records_.next() == kNoSlot) records_stuck_since_ = kNever;
  if (records_stuck_since_ != kNever && links_.no_link_since() == kNever) {
    if (links_.is_over(records_stuck_since_, 2 * links_.bound())) {
      end_session(
          Status(ErrorCode::link_failed, "no link is left that carries the engine's own messages").with_peer(text()));
      return kNever;
    }
    next = std::min(next, links_.look_at(records_stuck_since_, 2 * links_.bound()));
  }
  return std::min(next, give_up_without_link());
}

// What this side has to move fails once there has been no link for the bound. A receive that waits for its message does
// not: its sender, who may have proven the link already or has it a moment later, would find nobody and wait for ever.
// But without links for good no message comes: then the session ends, at the sender too.
Time Peer::give_up_without_link() {
  if (links_.no_link_since() == kNever || first_active_ == kNoSlot) return kNever;
  if (!links_.is_over(links_.no_link_since(), links_.bound()))
    return links_.look_at(links_.no_link_since(), links_.bound());
  const Status why =
      Status(ErrorCode::link_failed, "no link to the peer is left: " + links_.why_no_link()).with_peer(text());
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const Transfer& t = transfer(slot);
    const std::uint32_t next = t.next_active;
    if (t.request.operation != Operation::receive || t.rendezvous.other) fail(slot, why);
    slot = next;
  }
  if (first_active_ == kNoSlot) return kNever;
  if (!links_.is_over(links_.no_link_since(), kBoundsOfAReceive * links_.bound()))
    return links_.look_at(links_.no_link_since(), kBoundsOfAReceive * links_.bound());
  end_session(why);
  return kNever;
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
  next = std::min({next, next_deadline_, staging_client_.lease().run_timer(now)});
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

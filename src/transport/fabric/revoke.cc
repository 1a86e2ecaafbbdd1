#include <algorithm>

#include "transport/fabric/transport.h"

// Deregistration. By libfabric's documentation an access to a closed registration just fails; in fact a provider may
// end the connection, never complete the operation, or still write what it had begun to receive. So each peer is asked
// first to stop using the region, and loses its links if it does not answer in time.
//
// Also the keys of memory bound to endpoints (FI_MR_ENDPOINT): each link has its own, made at the first request.
namespace fairway::transport::fabric {
namespace {

constexpr Time kAnswerTimeout = 500 * kMillisecond;

template <class T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

// The region table refuses the region by now, so no new slice begins. Asks every peer that has a link in any state: the
// peer's end may be up before ours is, and a note reaches the peer before what makes a later end. A handle that is not
// registered any more was not fenced before.
void FabricTransport::deregister(std::uint64_t handle) {
  Deregistration ending;
  ending.handle = handle;
  ending.deadline = after(runtime_.clock.now(), kAnswerTimeout);
  const Registration* registration = registrations_.find(handle);
  ending.shared = registration == nullptr || includes(registration->memory.access, Access::read) ||
                  includes(registration->memory.access, Access::write);
  for (const Link& link : links_.all()) {
    if (link.state == PlannedLinks::State::free || !ending.shared || contains(ending.asked, link.peer)) continue;
    ending.asked.push_back(link.peer);
    send_note(link.peer, {Note::Kind::revoke, handle});
  }
  deregistrations_.push_back(std::move(ending));
  finish_deregistrations(runtime_.clock.now());
}

void FabricTransport::on_revoked(PeerIndex peer, std::uint64_t region) {
  for (Deregistration& each : deregistrations_)
    if (each.handle == region) std::erase(each.asked, peer);
}

void FabricTransport::finish_deregistrations(Time now) {
  std::erase_if(deregistrations_, [&](Deregistration& ending) {
    if (is_used(ending, now)) return false;
    end_registration(ending);
    return true;
  });
}

// Whether to wait. From the deadline on nothing is waited for: ends that may still use the memory are closed, and
// `held` says what that does not stop.
bool FabricTransport::is_used(Deregistration& ending, Time now) {
  const bool over = now >= ending.deadline;
  bool used = false;
  ending.held = {};
  for (const Link& each : links_.all()) {
    if (each.state == PlannedLinks::State::free) continue;
    Link& link = links_.at(each.id.slot);
    Lane* const lane = lane_of(link);
    const bool there = contains(ending.asked, link.peer);
    if (there && domains_[link.device]->peer_cpu_access()) {  // its CPU needs no end of ours
      used = true;
      if (over) ending.held = {ErrorCode::not_fenced, "fabric: the peer's CPU may still use the memory"};
    }
    if (lane == nullptr || lane->closed()) continue;
    const bool here = !lane->stop_memory(ending.handle);
    if (!here && !there) continue;
    used = true;
    if (!over) continue;
    const Status why(ErrorCode::link_failed, there ? "fabric: the peer still uses deregistered memory"
                                                   : "fabric: an operation on deregistered memory does not end");
    if (link.state == PlannedLinks::State::opening || link.state == PlannedLinks::State::accepted) {
      links_.on_connect_failed(link, why);
    } else {
      lane->fail(why);
      close_lane(link);
    }
  }
  for (const Unstopped& each : unstopped_) {
    const bool asked = contains(ending.asked, each.peer);
    const bool there = each.open && ending.shared && (asked || !links_.knows(each.peer));
    used |= there && asked;
    if (there || contains(each.local, ending.handle)) ending.held = {ErrorCode::not_fenced, each.why};
  }
  return used && !over;
}

void FabricTransport::end_registration(Deregistration& ending) {
  for (const Link& link : links_.all()) {
    Lane* const lane = lane_of(link);
    const int result = lane == nullptr ? 0 : lane->unbind(ending.handle);
    if (result == 0) continue;
    const Domain& domain = lane->domain();
    ending.held = {ErrorCode::not_fenced, "fabric: " + domain.device().name +
                                              ": its provider does not end the registration: " + domain.text(result)};
  }
  SlowDeregistrations::Ending made{ending.handle, {}, std::move(ending.held)};
  if (std::shared_ptr<Registration> ends = registrations_.take(ending.handle)) {
    made.slow = ends->memory.size_bytes >= kManyPages;  // at each domain
    made.end = [this, ends = std::move(ends)] { return ends->end(domains_); };
  }
  slow_deregistrations_.end(std::move(made), janitor_, task_, inbox_);
}

// ---- a peer's memory ----

void FabricTransport::on_revoke(PeerIndex peer, std::uint64_t region) {
  imports_.each(peer, [&](Import& entry) {
    if (handle_of(entry.region) == region) entry.extra.revoked = true;
  });
  const bool known = std::any_of(revoke_requests_.begin(), revoke_requests_.end(),
                                 [&](const RevokeRequest& each) { return each.peer == peer && each.region == region; });
  if (!known) revoke_requests_.push_back({peer, region});
  answer_revokes();
}

void FabricTransport::answer_revokes() {
  std::erase_if(revoke_requests_, [&](const RevokeRequest& request) {
    bool left = true;
    for (const std::uint32_t slot : links_.up())
      if (links_.at(slot).peer == request.peer) left = lanes_[slot]->stop_region(region_of(request.region)) && left;
    const bool held = std::any_of(unstopped_.begin(), unstopped_.end(), [&](const Unstopped& each) {
      return each.peer == request.peer && contains(each.remote, request.region);
    });
    if (left && !held) send_note(request.peer, {Note::Kind::revoked, request.region});
    return left;  // of an end that does not stop nothing is heard any more: no answer, and the peer closes its own
  });
}

// ---- keys of one link ----

FabricTransport::Answer FabricTransport::key_of_link(const Link& link, Import& import, Key& key) {
  auto& known = import.extra.link_keys;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const LinkKey& each) { return each.link_name == link.name(); });
  if (found == known.end()) {
    // Replaces keys of earlier attempts.
    std::erase_if(known, [&](const LinkKey& each) { return (each.link_name & 0xffff) == link.index; });
    known.push_back({link.name(), false, false, 0});
    send_note(link.peer, {Note::Kind::ask_key, handle_of(import.region), link.index, link.attempt});
    return Answer::not_yet;
  }
  key.key = found->key;
  return found->known ? Answer::yes : found->refused ? Answer::no : Answer::not_yet;
}

void FabricTransport::on_ask_key(PeerIndex peer, const Note& note) {
  Note answer = note;
  answer.kind = Note::Kind::key;
  answer.present = false;
  const Registration* registration = registrations_.find(note.region);
  const bool ends = std::any_of(deregistrations_.begin(), deregistrations_.end(),
                                [&](const Deregistration& each) { return each.handle == note.region; });
  for (const std::uint32_t slot : links_.up()) {
    const Link& link = links_.at(slot);
    if (link.peer != peer || link.index != note.link || link.attempt != note.attempt) continue;
    if (registration == nullptr || ends || !domains_[link.device]->has_mode(FI_MR_ENDPOINT)) continue;
    const auto bound = lane_of(link)->bind(note.region, registration->memory, runtime_.rng);
    answer.present = bound.status().is_ok();
    if (bound) answer.key = (*bound)->key();
  }
  send_note(peer, answer);
}

void FabricTransport::on_key(PeerIndex peer, const Note& note) {
  const std::uint64_t name = std::uint64_t{note.attempt} << 16 | note.link;
  imports_.each(peer, [&](Import& entry) {
    if (handle_of(entry.region) != note.region) return;
    for (LinkKey& each : entry.extra.link_keys) {
      if (each.link_name != name || each.known) continue;
      each.known = note.present;
      each.refused = !note.present;
      each.key = note.key;
    }
  });
}

}  // namespace fairway::transport::fabric

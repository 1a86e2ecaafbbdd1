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

}  // namespace

// The region table refuses the region by now, so no new slice begins.
void FabricTransport::deregister(std::uint64_t handle) {
  Deregistration ending{handle, after(runtime_.clock.now(), kAnswerTimeout), {}};
  const Registration* registration = registrations_.find(handle);
  const bool shared = registration != nullptr && (includes(registration->memory.access, Access::read) ||
                                                  includes(registration->memory.access, Access::write));
  for (const std::uint32_t slot : links_.up()) {
    const PeerIndex peer = links_.at(slot).peer;
    if (!shared || std::find(ending.asked.begin(), ending.asked.end(), peer) != ending.asked.end()) continue;
    ending.asked.push_back(peer);
    send_note(peer, {Note::Kind::revoke, handle});
  }
  deregistrations_.push_back(std::move(ending));
  finish_deregistrations(runtime_.clock.now());
}

void FabricTransport::on_revoked(PeerIndex peer, std::uint64_t region) {
  for (Deregistration& each : deregistrations_)
    if (each.handle == region) std::erase(each.asked, peer);
}

void FabricTransport::finish_deregistrations(Time now) {
  for (std::size_t i = 0; i < deregistrations_.size();) {
    Deregistration& ending = deregistrations_[i];
    const auto waits_for = [&](PeerIndex peer) {
      return std::find(ending.asked.begin(), ending.asked.end(), peer) != ending.asked.end();
    };
    bool free = true, peers_hold = false;
    for (const std::uint32_t slot : links_.up()) {
      Lane& lane = *lanes_[slot];
      const bool held_here = !lane.stop_memory(ending.handle);
      const bool held_there = waits_for(links_.at(slot).peer) && !lane.stopped();
      if ((held_here || held_there) && now >= ending.deadline) {
        lane.fail({ErrorCode::link_failed, held_there ? "fabric: the peer still uses deregistered memory"
                                                      : "fabric: an operation on deregistered memory does not end"});
        close_lane(lane);
        continue;
      }
      free = free && !held_here;
      peers_hold = peers_hold || held_there;
    }
    if (!free || peers_hold) {
      ++i;
      continue;
    }
    for (const auto& lane : lanes_)
      if (lane) lane->unbind(ending.handle);
    end_registration(ending.handle);
    deregistrations_.erase(deregistrations_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void FabricTransport::end_registration(std::uint64_t handle) {
  std::shared_ptr<Registration> ends = registrations_.take(handle);
  const bool slow = ends != nullptr && ends->memory.size_bytes >= kManyPages;  // at each domain
  slow_deregistrations_.end(std::move(ends), handle, slow, janitor_, task_, inbox_);
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
    if (left) send_note(request.peer, {Note::Kind::revoked, request.region});
    return left;
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

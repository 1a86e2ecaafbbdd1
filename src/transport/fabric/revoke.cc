#include <algorithm>

#include "transport/fabric/transport.h"

// Deregistration. By libfabric's documentation an access to a closed registration just fails; in fact a provider may end
// the connection, never complete the operation, or still write what it had begun to receive. So each peer is asked first
// to stop using the region, and loses its links if it does not answer in time.
//
// Also the keys of memory bound to endpoints (FI_MR_ENDPOINT): each link has its own, made at the first request.
namespace fairway::transport::fabric {
namespace {

constexpr Time kAnswerWithin = 500 * kMillisecond;

}  // namespace

// The region table refuses the region by now, so no new slice begins.
void FabricTransport::deregister(std::uint64_t handle) {
  Ending ending{handle, after(runtime_.clock.now(), kAnswerWithin), {}};
  const Registration* registration = registrations_.find(handle);
  const bool shared = registration != nullptr && (includes(registration->memory.access, Access::read) ||
                                                  includes(registration->memory.access, Access::write));
  for (const std::uint32_t slot : links_.up()) {
    const PeerIndex peer = links_.at(slot).peer;
    if (!shared || std::find(ending.asked.begin(), ending.asked.end(), peer) != ending.asked.end()) continue;
    ending.asked.push_back(peer);
    say(peer, {Note::Kind::revoke, handle});
  }
  endings_.push_back(std::move(ending));
  end_memory(runtime_.clock.now());
}

void FabricTransport::hear_revoked(PeerIndex peer, std::uint64_t region) {
  for (Ending& each : endings_)
    if (each.handle == region) std::erase(each.asked, peer);
}

void FabricTransport::end_memory(Time now) {
  for (std::size_t i = 0; i < endings_.size();) {
    Ending& ending = endings_[i];
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
    endings_.erase(endings_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void FabricTransport::end_registration(std::uint64_t handle) {
  std::shared_ptr<Registration> ends = registrations_.take(handle);
  const bool slow = ends != nullptr && ends->memory.size_bytes >= kManyPages;  // at each domain
  slow_ends_.end(std::move(ends), handle, slow, janitor_, task_, inbox_);
}

// ---- a peer's memory ----

void FabricTransport::hear_revoke(PeerIndex peer, std::uint64_t region) {
  imports_.each(peer, [&](ImportTable<Remote>::Entry& entry) {
    if (handle_of(entry.region) == region) entry.extra.revoked = true;
  });
  const bool known = std::any_of(leavings_.begin(), leavings_.end(),
                                 [&](const Leaving& each) { return each.peer == peer && each.region == region; });
  if (!known) leavings_.push_back({peer, region});
  tell_left();
}

void FabricTransport::tell_left() {
  std::erase_if(leavings_, [&](const Leaving& leaving) {
    bool left = true;
    for (const std::uint32_t slot : links_.up())
      if (links_.at(slot).peer == leaving.peer) left = lanes_[slot]->stop_region(region_of(leaving.region)) && left;
    if (left) say(leaving.peer, {Note::Kind::revoked, leaving.region});
    return left;
  });
}

// ---- keys of one link ----

FabricTransport::Answer FabricTransport::key_of_link(const Link& link, ImportTable<Remote>::Entry& import, Key& key) {
  auto& known = import.extra.link_keys;
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const LinkKey& each) { return each.link_name == link.name(); });
  if (found == known.end()) {
    // Replaces keys of earlier attempts.
    std::erase_if(known, [&](const LinkKey& each) { return (each.link_name & 0xffff) == link.index; });
    known.push_back({link.name(), false, false, 0});
    say(link.peer, {Note::Kind::ask_key, handle_of(import.region), link.index, link.attempt});
    return Answer::not_yet;
  }
  key.key = found->key;
  return found->known ? Answer::yes : found->refused ? Answer::no : Answer::not_yet;
}

void FabricTransport::hear_ask(PeerIndex peer, const Note& note) {
  Note answer = note;
  answer.kind = Note::Kind::key;
  answer.present = false;
  const Registration* registration = registrations_.find(note.region);
  const bool ends =
      std::any_of(endings_.begin(), endings_.end(), [&](const Ending& each) { return each.handle == note.region; });
  for (const std::uint32_t slot : links_.up()) {
    const Link& link = links_.at(slot);
    if (link.peer != peer || link.index != note.link || link.attempt != note.attempt) continue;
    if (registration == nullptr || ends || !domains_[link.device]->has_mode(FI_MR_ENDPOINT)) continue;
    const auto bound = lane_of(link)->bind(note.region, registration->memory, runtime_.rng);
    answer.present = bound.status().is_ok();
    if (bound) answer.key = (*bound)->key();
  }
  say(peer, answer);
}

void FabricTransport::hear_key(PeerIndex peer, const Note& note) {
  const std::uint64_t name = std::uint64_t{note.attempt} << 16 | note.link;
  imports_.each(peer, [&](ImportTable<Remote>::Entry& entry) {
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

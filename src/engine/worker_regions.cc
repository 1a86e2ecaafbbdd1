#include <algorithm>
#include <cstring>

#include "engine/worker.h"

// Worker: what has to end before a region can be removed.
namespace fairway::engine {

Slice Worker::signal_word(std::uint32_t slot, std::uint64_t value) {
  const std::uint64_t offset = slot * sizeof value;
  std::memcpy(signals_.bytes.get() + offset, &value, sizeof value);
  return {signals_.region, offset, sizeof value};
}

void Worker::machine_known() {
  for (const std::uint32_t slot : live_) peers_[slot]->learn_rates();
}

void Worker::stop_users_of(RegionId id) {
  take_all_submissions();  // users of the region that were accepted before it was revoked
  for (const std::uint32_t slot : live_) peers_[slot]->region_users().stop_users_of(id);
  if (is_home())
    any_.take_if([id](const AnyReceives::One& one) { return one.into.region == id; },
                 [&](std::uint32_t slot) {
                   end_any(slot, {ErrorCode::cancelled, "the local region was deregistered"});
                 });
}

void Worker::remove_region(RegionId id, RegionOf what, std::function<void(Status)> done) {
  if (shut_) return done(untouched());  // every transport is closed
  RegionRemovals::Removal removal;
  removal.id = id;
  removal.done = std::move(done);
  removal.until_gone = what == RegionOf::window;
  // No new use can begin. A window has no users here except its receive.
  if (what == RegionOf::program)
    for (const std::uint32_t slot : live_) peers_[slot]->region_users().add_users_of(id, removal.users);
  removals_.begin(std::move(removal));
  again();  // continues at the end of the step, since the caller may be in the middle of a transfer
}

std::string Worker::holders_of(RegionId id) {
  std::string names;
  const RegionRemovals::Removal* removal = removals_.find(id);
  if (removal == nullptr) return names;
  const auto add = [&](const std::string& name) {
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
  };
  for (const TransferId user : removal->users)
    if (const Peer* owner =
            removals_.has_ended(user, id) ? nullptr : peer_of(services_.transfers[user.slot].request.peer))
      add("a transfer with " + owner->text());
  for (std::uint16_t t = 0; t < transports_.size(); ++t)
    if ((removal->transports >> t & 1) != 0) add("the transport " + std::string(transports_[t]->name()));
  add_viewers_of(id, names);
  return names;
}

}  // namespace fairway::engine

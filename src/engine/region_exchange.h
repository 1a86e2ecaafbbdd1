#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fairway/engine.h"

#include "engine/peer_sessions.h"
#include "engine/pending_calls.h"
#include "engine/published_regions.h"
#include "engine/registered_regions.h"

namespace fairway::engine {

// How engines learn of each other's regions: by descriptions that are imported, and by names that peers look up. Any
// thread.
class RegionExchange final : public SessionListener {
 public:
  // Everything given outlives it.
  RegionExchange(const RegisteredRegions& regions, const PeerTable& peers, const Workers& workers, Waiting& waiting,
                 PeerSessions& sessions)
      : regions_(regions), peers_(peers), workers_(workers), waiting_(waiting), sessions_(sessions) {}

  // As the calls of Engine: describe, import_region, release, publish, lookup.
  Result<std::vector<std::byte>> describe(RegionId id);
  Result<RemoteRegion> import(PeerId peer, std::span<const std::byte> description);
  Status release(const RemoteRegion& region);
  Status publish(std::string_view name, RegionId region);
  Result<RemoteRegion> lookup(PeerId peer, std::string_view name, Timeout timeout);

  void withdraw(RegionId region) { published_.withdraw(region); }  // of all names: it is revoked
  void end_calls(const Status& why) { lookups_.end_all(why); }

  Status on_message(control::SessionId session, MessageType type, std::span<const std::byte> bytes) override;
  void on_session_down(control::SessionId session, const Status& why) override;

 private:
  void answer(const PublishedRegions::Asker& asker, RegionId region);

  const RegisteredRegions& regions_;
  const PeerTable& peers_;
  const Workers& workers_;
  Waiting& waiting_;
  PeerSessions& sessions_;
  PublishedRegions published_;
  PendingCalls<std::vector<std::byte>> lookups_{waiting_};
};

}  // namespace fairway::engine

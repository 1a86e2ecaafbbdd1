#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/engine.h"
#include "fairway/ids.h"
#include "fairway/status.h"

#include "control/control.h"
#include "engine/peer_sessions.h"
#include "engine/registered_regions.h"

namespace fairway::engine {

// The names under which this engine's regions are published, and the peers that asked for a name before there was one.
// Any thread; cold paths.
class PublishedRegions {
 public:
  struct Asker {
    control::SessionId session = 0;
    std::uint64_t token = 0;
  };
  static constexpr std::size_t kMaxAskers = 4096;  // beyond them the asker's timeout answers

  static Status check_name(std::string_view name);
  // Who waited for that name, in order: to be answered now. already_exists: it is another region's.
  Result<std::vector<Asker>> publish(std::string_view name, RegionId region);
  void withdraw(RegionId region);  // all its names
  // None: not published yet, and `asker` waits for it.
  std::optional<RegionId> find(std::string_view name, const Asker& asker);
  void forget(control::SessionId session);  // it waits for nothing any more

 private:
  struct Waiting {
    Asker asker;
    std::string name;
  };
  std::mutex mutex_;  // guards both
  std::map<std::string, RegionId, std::less<>> names_;
  std::vector<Waiting> waiting_;
};

// How engines learn of each other's regions: by descriptions that are imported, and by names that peers look up. Any
// thread.
class RegionExchange final : public SessionListener {
 public:
  // Everything given outlives it.
  RegionExchange(EngineTables& tables, const RegisteredRegions& regions, const Workers& workers, Waiting& waiting,
                 PeerSessions& sessions)
      : tables_(tables), regions_(regions), workers_(workers), waiting_(waiting), sessions_(sessions) {}

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

  EngineTables& tables_;
  const RegisteredRegions& regions_;
  const Workers& workers_;
  Waiting& waiting_;
  PeerSessions& sessions_;
  PublishedRegions published_;
  PendingCalls<std::vector<std::byte>> lookups_{waiting_};
};

}  // namespace fairway::engine

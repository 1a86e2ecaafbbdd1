#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/links/link_set.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/route.h"

namespace fairway::engine {

// Finds routes for transfers to one peer: collects which memories they use, whether transports reach them, and whether
// a better link is about to come up. Caches answers that hold until a link comes or goes. Owner: the peer's worker.
class Routes {
 public:
  Routes(PeerContext& peer, LinkSet& links) : peer_(peer), links_(links) {}

  // ---- links, as route() and stripe() see them; by index ----
  void refresh();  // at the beginning of a pump
  [[nodiscard]] LinkView& view(std::size_t link) { return views()[link]; }
  std::span<LinkView> views_for(const Transfer& t);  // with their rates for its memory
  std::span<LinkView> views() {
    if (views_.size() < links_.size()) views_.resize(links_.size());
    return {views_.data(), links_.size()};
  }

  [[nodiscard]] std::uint64_t version() const { return version_; }  // grows when a link becomes ready or stops being so
  void rates_changed() { ++version_; }
  void link_changed(bool was_ready) {
    ++version_;
    if (was_ready) missed_since_ = kNever;
  }

  // A shortcut for small transfers between host memories with one link to choose.
  struct KnownRoute {
    std::uint64_t version = 0;
    Operation operation = Operation::write;
    RegionId local;
    RemoteRegionId remote;
    std::uint8_t link = 0, memory_kinds = 0;
    Place place = kNoPlace, far_place = kNoPlace;
  };
  const KnownRoute* known(Operation operation, const Extent& extent) const;  // null: it is not known
  bool recall(Transfer& t);                                                  // false: likewise
  void remember(const Transfer& t);
  // `opening`: set where a transport does not know yet whether it reaches both memories.
  RouteRequest wanted(const Request& request, std::uint64_t bytes, bool* opening = nullptr);
  bool waits_for_link(const Transfer& t, Method now);
  Route route_for(const Request& request, Place place);
  // Whether a link that is up moves bytes between device memory here and that memory of the peer.
  transport::Reach reach_by_any(RegionId local, RemoteRegionId remote);

  struct Memories {             // of both sides of a transfer
    std::uint8_t kinds = 0;     // a bit by MemoryKind
    std::uint64_t without = 0;  // a bit for each transport that one of them is not registered with
    std::uint64_t partly = 0;   // or not with all of its devices
  };
  [[nodiscard]] Memories memories(const Request& request) const;
  struct Unreached {            // between memories of which one is a device's
    std::uint64_t without = 0;  // a bit for each transport that says so
    bool opening = false;       // one does not know yet
    bool pinning = false;       // one works, but is still slow
    std::string why;            // of the last one
  };
  Unreached unreached(const Request& request);
  // Of those transports: a bit for each link that one of the memories is not registered for.
  std::uint64_t links_without(const Request& request, std::uint64_t transports);
  // Whether the link's devices at both ends have all memories of the request.
  bool has_memories(const Link& link, const Request& request, std::string* why_not = nullptr);

 private:
  struct Reached {  // two memories of which a transport has said so, under that version of routes
    std::uint64_t version = 0;
    std::uint16_t transport = 0;
    RegionId local;
    RemoteRegionId remote;
  };
  static std::size_t reached_place(RegionId local, RemoteRegionId remote) {
    return (local.slot * 31 + remote.slot) % kKnownRoutes;
  }
  [[nodiscard]] bool was_reached(RegionId local, RemoteRegionId remote, std::uint16_t transport) const;
  [[nodiscard]] std::size_t known_place(const Extent& extent) const {  // only if there are some
    return (extent.local.region.slot * 31 + extent.remote.region.slot) & (known_routes_.size() - 1);
  }
  [[nodiscard]] static bool is_known_kind(const Transfer& t);  // false: such a transfer's route may differ each time
  [[nodiscard]] std::uint64_t without_streams() const;         // a bit for each transport
  transport::Reach reach(const Block& block, std::uint16_t transport, std::string& why);

  static constexpr std::size_t kKnownRoutes = 16;  // a power of two
  PeerContext& peer_;
  LinkSet& links_;
  std::vector<LinkView> views_;
  std::uint64_t version_ = 1;
  Time missed_since_ = kNever;  // a link that is away and would do what none that is there does, since it went
  std::unique_ptr<std::array<Reached, kKnownRoutes>> reached_;  // made when a device's memory is first asked for
  std::vector<KnownRoute> known_routes_;  // none, then one, then kKnownRoutes: most peers' memories are few
};

}  // namespace fairway::engine

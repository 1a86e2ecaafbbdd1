#pragma once

#include <cstdint>
#include <string>

#include "fairway/explain.h"

#include "engine/links/rates.h"
#include "engine/links/routes.h"
#include "engine/staging/client.h"

namespace fairway::engine {

// Fills in what Engine::explain() says about the links to a peer. Owner: the peer's worker.
class PathExplainer {
 public:
  PathExplainer(PeerContext& peer, LinkSet& links, Routes& routes, LinkRates& rates, StagingPool& pool,
                StagingClient& staging)
      : peer_(peer), links_(links), routes_(routes), rates_(rates), pool_(pool), staging_(staging) {}

  // Of a planned request: its links, and what it goes through.
  Method plan(Explanation& out, const Request& request);
  // `used`: a bit for each link that was. `chosen`: the route that is planned; `request`: what it is for.
  void links(Explanation& out, const Route* chosen, std::uint64_t used, const TransferEnds& ends,
             const Request* request = nullptr);

 private:
  [[nodiscard]] std::string why_without(const Request& request, std::size_t link);
  Route as_staged(const Request& request, const Route& route, TransferEnds& ends);
  void path(Explanation& out, const Route& route, const Request& request);  // through each transport taken

  PeerContext& peer_;
  LinkSet& links_;
  Routes& routes_;
  LinkRates& rates_;
  StagingPool& pool_;
  StagingClient& staging_;
};

}  // namespace fairway::engine

#pragma once

#include <memory>
#include <span>

#include "engine/links/link_set.h"
#include "engine/local_regions.h"
#include "engine/remote_regions.h"

namespace fairway::engine {

// The links to one peer and the memories on both sides: what every part of a peer needs that asks which link moves
// what. Its members outlive those parts.
struct LinksAndRegions {
  std::span<const std::unique_ptr<transport::Transport>> transports;
  LocalRegions& locals;
  RemoteRegions& remotes;
  LinkSet& links;
  const RegionOwner& owner;  // the peer
};

}  // namespace fairway::engine

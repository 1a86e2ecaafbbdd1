#include <algorithm>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// What a transfer asks of a route: its memories, what transports say of them, and whether a better link is on its way.
namespace fairway::engine {

// `opening`: set where a transport does not know yet whether it reaches both memories.
RouteRequest Peer::wanted(const Request& request, std::uint64_t bytes, bool* opening) {
  const Memories both = memories(request);
  RouteRequest asked{op_of(request.operation), bytes, both.kinds, request.options.start_after != nullptr, both.without};
  if (both.partly != 0) asked.without_links = links_without(request, both.partly);
  if ((both.kinds & kDeviceBit) == 0 || is_atomic(request.operation)) return asked;
  const Unreached far = unreached(request);
  asked.without |= far.without;
  asked.staged = true;
  if (opening != nullptr) *opening = far.opening || (far.pinning && bytes == 0);
  return asked;
}

// Asking for the route of a small write takes longer than the write. It depends on the request's size and the links'
// load only where there are several links to choose from, or bytes to stripe.
Peer::KnownRoute* Peer::known_route(const Transfer& t) {
  const auto* extent = std::get_if<Extent>(&t.request.layout);
  const bool one_sided = t.request.operation == Operation::write || t.request.operation == Operation::read;
  if (extent == nullptr || !one_sided || t.total >= kStripeMinimum || t.request.options.start_after != nullptr)
    return nullptr;
  return &known_routes_[(extent->local.region.slot * 31 + extent->remote.region.slot) % known_routes_.size()];
}

bool Peer::recall_route(Transfer& t) {
  const KnownRoute* known = known_route(t);
  if (known == nullptr || known->version != route_version_ || known->operation != t.request.operation) return false;
  const Extent& extent = std::get<Extent>(t.request.layout);
  if (known->local != extent.local.region || known->remote != extent.remote.region) return false;
  t.route.method = Method::native;
  t.route.count = 1;
  t.route.links[0] = known->link;
  t.route_version = known->version;
  t.memory_kinds = known->memory_kinds;
  t.place = known->place;
  t.far_place = known->far_place;
  t.paced = false;
  return true;
}

void Peer::remember_route(const Transfer& t) {
  KnownRoute* known = known_route(t);
  if (known == nullptr || t.route.method != Method::native || (t.memory_kinds & kDeviceBit) != 0) return;
  const LinkView& chosen = views_[t.route.links[0]];
  const auto views = std::span(views_.data(), links_.size());
  if (std::ranges::count_if(views, [&](const LinkView& v) { return v.usable && v.rank == chosen.rank; }) != 1) return;
  const Extent& extent = std::get<Extent>(t.request.layout);
  *known = {
      t.route_version, t.request.operation, extent.local.region, extent.remote.region, t.route.links[0], t.memory_kinds,
      t.place,         t.far_place};
}

// Of pairs of memories that a device copies between: each transport that has such links is asked once for each.
Peer::Unreached Peer::unreached(const Request& request) {
  Unreached out;
  std::uint64_t asked = 0;
  for (const Link& link : links_) {
    const std::uint64_t bit = std::uint64_t{1} << link.transport;
    if ((asked & bit) != 0 || (link.capabilities->memory_kinds & kDeviceBit) == 0 || !link.is_up()) continue;
    asked |= bit;
    Block last;
    for (std::uint64_t i = 0; i < block_count(request.layout) && (out.without & bit) == 0; ++i) {
      const Block block = block_at(request.layout, i);
      if (block.local == last.local && block.remote == last.remote) {
        if (is_regular(request.layout)) break;
        continue;
      }
      last = block;
      if (!block.remote) continue;  // of a send, before its receive
      std::string why;
      const transport::Reach is = reach(block, link.transport, why);
      out.opening |= is == transport::Reach::opening;
      out.pinning |= is == transport::Reach::pinning;
      if (is != transport::Reach::no) continue;
      out.without |= bit;
      out.why = why;
    }
  }
  return out;
}

std::uint64_t Peer::links_without(const Request& request, std::uint64_t transports) {
  std::uint64_t out = 0;
  const bool atomic = is_atomic(request.operation);
  for (std::size_t i = 0; i < links_.size() && i < kMaxLinks; ++i) {
    const Link& link = links_[i];
    if ((transports >> link.transport & 1) == 0) continue;
    Block last;
    for (std::uint64_t k = 0; k < (atomic ? 1 : block_count(request.layout)); ++k) {
      Block block;
      if (atomic)
        block.remote = request.target.region;
      else
        block = block_at(request.layout, k);
      if (k > 0 && block.local == last.local && block.remote == last.remote) {
        if (!atomic && is_regular(request.layout)) break;
        continue;
      }
      last = block;
      if (!block.remote) continue;  // of a send, before its receive
      const auto remote = worker_.remotes().handle(owner_, block.remote, link.transport);
      const std::uint64_t local = atomic ? kNotRegistered : worker_.locals().handle(block.local, link.transport);
      if (!remote || !links_.can_reach(link, local, *remote)) {
        out |= std::uint64_t{1} << i;
        break;
      }
    }
  }
  return out;
}

transport::Reach Peer::reach(const Block& block, std::uint16_t transport, std::string& why) {
  Reached& known = reached_[(block.local.slot * 31 + block.remote.slot) % reached_.size()];
  const bool same = known.version == route_version_ && known.transport == transport && known.local == block.local &&
                    known.remote == block.remote;
  if (same) return transport::Reach::yes;
  const auto remote = worker_.remotes().handle(owner_, block.remote, transport);
  if (!remote) why = remote.status().message();
  if (!remote) return transport::Reach::no;
  const std::uint64_t local = worker_.locals().handle(block.local, transport);
  transport::Transport& by = worker_.transport_at(transport);
  const transport::Reach is = by.reach({}, local, *remote, nullptr);
  if (is == transport::Reach::no) (void)by.reach({}, local, *remote, &why);
  if (is == transport::Reach::yes) known = {route_version_, transport, block.local, block.remote};
  return is;
}

transport::Reach Peer::reach_by_any(RegionId local, RemoteRegionId remote) {
  Block block;
  block.local = local;
  block.remote = remote;
  transport::Reach best = transport::Reach::no;
  std::string why;
  for (const Link& link : links_)
    if (link.is_up() && (link.capabilities->memory_kinds & kDeviceBit) != 0)
      best = std::min(best, reach(block, link.transport, why));
  return best;
}

Route Peer::route_for(const Request& request, Place place) {
  std::array<LinkView, kMaxLinks> views;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    views[i] = links_[i].view();
    views[i].bytes_per_second = links_[i].rate(place);
  }
  const std::uint64_t bytes = is_atomic(request.operation) ? 8 : total_bytes(request.layout);
  return route(wanted(request, bytes), std::span(views.data(), links_.size()));
}

// No link that is ready can do it: whether one that is not yet, or not again, could. For as long as a peer may be
// silent.
// Of what is staged: one that takes it as it is.
bool Peer::waits_for_link(const Transfer& t, Method now) {
  std::array<LinkView, kMaxLinks> all;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    all[i] = links_[i].view();
    all[i].usable = true;
  }
  const Method best = route(wanted(t.request, t.total), std::span(all.data(), links_.size())).method;
  const bool staged = now == Method::staged;
  const bool comes = std::any_of(links_.connecting().begin(), links_.connecting().end(), [&](std::uint16_t transport) {
    return !staged || reaches(worker_.transport_at(transport), MemoryKind::device);
  });
  if (!comes && (staged ? best != Method::native : best == Method::none)) return false;
  if (missed_since_ == kNever) missed_since_ = links_.since_now();
  if (links_.is_over(missed_since_, links_.bound())) return false;
  wake_at(links_.look_at(missed_since_, links_.bound()));
  return true;
}

Peer::Memories Peer::memories(const Request& request) const {
  Memories out;
  const auto add = [&](const auto& table, RegionId id) {
    transport::RegionTable::Resolved found;
    if (table.resolve(id, 0, 0, Access::none, found) == ErrorCode::ok)
      out.kinds |= static_cast<std::uint8_t>(1u << static_cast<unsigned>(found.kind));
  };
  const Services& services = worker_.services();
  const auto add_remote = [&](RemoteRegionId id) {
    add(services.remotes, {id.slot, id.generation});
    out.without |= worker_.remotes().without(id);
    out.partly |= worker_.remotes().partly(id);
  };
  const auto add_block = [&](const Block& block) {
    add(services.regions, block.local);
    out.without |= worker_.locals().without(block.local);
    out.partly |= worker_.locals().partly(block.local);
    add_remote(block.remote);
  };
  if (is_atomic(request.operation)) {
    add_remote(request.target.region);
  } else if (const auto* extents = std::get_if<std::span<const Extent>>(&request.layout)) {
    for (std::uint64_t i = 0; i < extents->size(); ++i) add_block(block_at(request.layout, i));
  } else {
    add_block(block_at(request.layout, 0));
  }
  return out;
}

}  // namespace fairway::engine

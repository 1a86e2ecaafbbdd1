#include "engine/links/routes.h"

#include <algorithm>
#include <string>

#include "engine/tables/route.h"
#include "transport/gpu_access.h"

namespace fairway::engine {

void Routes::refresh() {
  const std::span<LinkView> views = this->views();
  for (std::size_t i = 0; i < views.size(); ++i) views[i] = links_[i].view();
}

std::span<LinkView> Routes::views_for(const Transfer& t) {
  const std::span<LinkView> views = this->views();
  for (std::size_t i = 0; i < views.size(); ++i) views[i].bytes_per_second = links_[i].rate(t.place);
  return views;
}

// `opening`: set if a transport does not know yet whether it reaches both memories.
RouteRequest Routes::wanted(const Request& request, std::uint64_t bytes, bool* opening) {
  const Memories both = memories(request);
  RouteRequest asked{op_of(request.operation), bytes, both.kinds, request.options.start_after != nullptr, both.without};
  if (both.partly != 0) asked.without_links = links_without(request, both.partly);
  if (asked.stream_ordered) asked.without |= without_streams();
  if ((both.kinds & kDeviceBit) == 0 || is_atomic(request.operation)) return asked;
  const Unreached far = unreached(request);
  asked.without |= far.without;
  asked.staged = true;
  if (opening != nullptr) *opening = far.opening || (far.pinning && bytes == 0);
  return asked;
}

std::uint64_t Routes::without_streams() const {
  std::uint64_t out = 0;
  for (std::size_t t = 0; t < peer_.transports().size(); ++t) {
    const transport::GpuAccess* const gpus = peer_.transports()[t]->gpu();
    if (gpus == nullptr || !gpus->orders_by_streams()) out |= std::uint64_t{1} << t;
  }
  return out;
}

// Asking for the route of a small write takes longer than the write. It depends on the request's size and the links'
// load only where there are several links to choose from, or bytes to stripe.
bool Routes::is_known_kind(const Transfer& t) {
  const auto* extent = std::get_if<Extent>(&t.request.layout);
  const bool one_sided = t.request.operation == Operation::write || t.request.operation == Operation::read;
  return extent != nullptr && one_sided && t.total < kStripeMinimum && t.request.options.start_after == nullptr;
}

const Routes::KnownRoute* Routes::known(Operation operation, const Extent& extent) const {
  if (known_routes_.empty()) return nullptr;
  const KnownRoute& known = known_routes_[known_place(extent)];
  const bool same = known.version == version_ && known.operation == operation && known.local == extent.local.region &&
                    known.remote == extent.remote.region;
  return same ? &known : nullptr;
}

bool Routes::recall(Transfer& t) {
  if (!is_known_kind(t)) return false;
  const KnownRoute* known = this->known(t.request.operation, std::get<Extent>(t.request.layout));
  if (known == nullptr) return false;
  if (const LinkView& view = views_[known->link]; view.way != 0 && !takes_more(view, t.total)) return false;
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

void Routes::remember(const Transfer& t) {
  if (!is_known_kind(t) || t.route.method != Method::native) return;
  const LinkView& chosen = views_[t.route.links[0]];
  const Extent& extent = std::get<Extent>(t.request.layout);
  const bool on_device =
      (t.memory_kinds & kDeviceBit) != 0;  // whose way may still be opening, or slow while it is pinned
  if (on_device && !was_reached(extent.local.region, extent.remote.region, links_[t.route.links[0]].transport)) return;
  const auto is_in_doubt = [&](const LinkView& v) {
    const bool keeps_to_chosen = chosen.way != 0 && v.way == chosen.way && &v > &chosen;
    return &v != &chosen && v.usable && v.rank == chosen.rank && !keeps_to_chosen;
  };
  if (std::ranges::any_of(views(), is_in_doubt)) return;
  if (known_routes_.empty())
    known_routes_.resize(1);
  else if (known_routes_.size() == 1 && known_routes_[0].version == t.route_version)  // and holds, for other memories
    known_routes_.resize(kKnownRoutes);
  known_routes_[known_place(extent)] = {
      t.route_version, t.request.operation, extent.local.region, extent.remote.region, t.route.links[0], t.memory_kinds,
      t.place,         t.far_place};
}

// Asks each transport with links for device memory once for each pair of memories.
Routes::Unreached Routes::unreached(const Request& request) {
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

std::uint64_t Routes::links_without(const Request& request, std::uint64_t transports) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < links_.size() && i < kMaxLinks; ++i)
    if ((transports >> links_[i].transport & 1) != 0 && !has_memories(links_[i], request)) out |= std::uint64_t{1} << i;
  return out;
}

bool Routes::has_memories(const Link& link, const Request& request, std::string* why_not) {
  const bool atomic = is_atomic(request.operation);
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
    const auto remote = peer_.remotes().handle(peer_.owner(), block.remote, link.transport);
    if (!remote && why_not != nullptr) *why_not = remote.status().message();
    const std::uint64_t local = atomic ? kNotRegistered : peer_.locals().handle(block.local, link.transport);
    if (!remote || !links_.can_reach(link, local, *remote, why_not)) return false;
  }
  return true;
}

// The transport has said yes, and routes have not changed since.
bool Routes::was_reached(RegionId local, RemoteRegionId remote, std::uint16_t transport) const {
  if (!reached_) return false;
  const Reached& known = (*reached_)[reached_place(local, remote)];
  return known.version == version_ && known.transport == transport && known.local == local && known.remote == remote;
}

transport::Reach Routes::reach(const Block& block, std::uint16_t transport, std::string& why) {
  if (!reached_) reached_ = std::make_unique<std::array<Reached, kKnownRoutes>>();
  if (was_reached(block.local, block.remote, transport)) return transport::Reach::yes;
  const auto remote = peer_.remotes().handle(peer_.owner(), block.remote, transport);
  if (!remote) why = remote.status().message();
  if (!remote) return transport::Reach::no;
  const std::uint64_t local = peer_.locals().handle(block.local, transport);
  transport::Transport& by = *peer_.transports()[transport];
  const transport::Reach is = by.reach({}, local, *remote, nullptr);
  if (is == transport::Reach::no) (void)by.reach({}, local, *remote, &why);
  if (is == transport::Reach::yes)
    (*reached_)[reached_place(block.local, block.remote)] = {version_, transport, block.local, block.remote};
  return is;
}

transport::Reach Routes::reach_by_any(RegionId local, RemoteRegionId remote) {
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

Route Routes::route_for(const Request& request, Place place) {
  std::array<LinkView, kMaxLinks> views;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    views[i] = links_[i].view();
    views[i].bytes_per_second = links_[i].rate(place);
  }
  const std::uint64_t bytes = is_atomic(request.operation) ? 8 : total_bytes(request.layout);
  return route(wanted(request, bytes), std::span(views.data(), links_.size()));
}

// No ready link can do it: whether to wait for one that is still connecting or reconnecting, for at most the bound. A
// staged transfer waits for a link that takes it directly.
bool Routes::waits_for_link(const Transfer& t, Method now) {
  std::array<LinkView, kMaxLinks> all;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    all[i] = links_[i].view();
    all[i].usable = true;
  }
  const Method best = route(wanted(t.request, t.total), std::span(all.data(), links_.size())).method;
  const bool staged = now == Method::staged;
  const bool comes = std::any_of(links_.connecting().begin(), links_.connecting().end(), [&](std::uint16_t transport) {
    return !staged || reaches(*peer_.transports()[transport], MemoryKind::device);
  });
  if (!comes && (staged ? best != Method::native : best == Method::none)) return false;
  if (missed_since_ == kNever) missed_since_ = links_.since_now();
  if (links_.is_over(missed_since_, links_.bound())) return false;
  peer_.wake_at(links_.look_at(missed_since_, links_.bound()));
  return true;
}

Routes::Memories Routes::memories(const Request& request) const {
  Memories out;
  const auto add = [&](MemoryKind kind) { out.kinds |= static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind)); };
  const auto add_remote = [&](RemoteRegionId id) {
    if (peer_.remotes().allows({id, 0}, 0, Access::none) == ErrorCode::ok) add(peer_.remotes().kind_of(id));
    out.without |= peer_.remotes().without(id);
    out.partly |= peer_.remotes().partly(id);
  };
  const auto add_block = [&](const Block& block) {
    transport::RegionTable::Resolved found;
    if (peer_.regions().resolve(block.local, 0, 0, Access::none, found) == ErrorCode::ok) add(found.kind);
    out.without |= peer_.locals().without(block.local);
    out.partly |= peer_.locals().partly(block.local);
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

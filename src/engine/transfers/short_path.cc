#include "engine/transfers/short_path.h"

namespace fairway::engine {
namespace {

constexpr bool lies_in(std::uint64_t size, std::uint64_t offset, std::uint64_t length) {
  return offset <= size && length <= size - offset;
}

}  // namespace

bool ShortPath::learn(Operation operation, transport::Op op, const Extent& extent, Known& known) {
  const Routes::KnownRoute* const route = routes_.known(operation, extent);
  if (route == nullptr) return false;
  const Link& link = links_[route->link];
  known = {};
  known.version = route->version;
  known.op = op;
  known.local = extent.local.region;
  known.remote = extent.remote.region;
  known.link = route->link;
  known.place = route->place;
  known.far_place = route->far_place;
  if (op == transport::Op::write_immediate) {
    const auto kind = static_cast<unsigned>(peer_.remotes().kind_of(extent.remote.region));
    if (!link.has(op) || !link.capabilities->ordered || (link.capabilities->immediate_kinds >> kind & 1) == 0)
      return true;
  }
  if (!link.has(op) || !link.capabilities->visible_when_done) return true;
  const auto handle = peer_.remotes().handle(peer_.owner(), extent.remote.region, link.transport);
  if (!handle) return true;
  const Result<Region> here = peer_.regions().find(known.local), there = peer_.remotes().bounds(known.remote);
  if (!here || !there || !reached_by_cpu(here->kind)) return true;
  const bool reads = op == transport::Op::read;
  if (!includes(there->access, reads ? Access::read : Access::write)) return true;
  if (reads && !peer_.regions().is_writable(known.local)) return true;
  known.here = &peer_.regions().slot_of(known.local);
  known.there = &peer_.remotes().slot_of(known.remote);
  known.address = static_cast<std::byte*>(here->address);
  known.here_bytes = here->size_bytes;
  known.there_bytes = there->size_bytes;
  known.by = dynamic_cast<transport::MovesAtOnce*>(peer_.transports()[link.transport].get());
  known.remote_handle = *handle;
  return true;
}

ShortPath::Known& ShortPath::keep(std::uint32_t place, const Known& learned) {
  if (known_.empty())
    known_.resize(1);
  else if (known_.size() == 1 && known_[0].version == learned.version)  // and holds, for other memories
    known_.resize(kKnown);
  return known_[place & (known_.size() - 1)] = learned;
}

bool ShortPath::move(Operation operation, const Extent& extent, const RequestOptions& options,
                     AtOnceTable<>::Past& past) {
  const Notify& notify = options.notify;
  const transport::Op op = operation == Operation::read      ? transport::Op::read
                           : notify.kind == NotifyKind::none ? transport::Op::write
                                                             : transport::Op::write_immediate;
  const std::uint32_t immediate = notify.immediate | (notify.kind == NotifyKind::event ? kEventBit | kBareEventBit : 0);
  const std::uint32_t place =
      extent.local.region.slot * 31 + extent.remote.region.slot * 5 + static_cast<std::uint32_t>(op) % 5;
  Known* known = known_.empty() ? nullptr : &known_[place & (known_.size() - 1)];
  const bool same = known != nullptr && known->version == routes_.version() && known->op == op &&
                    known->local == extent.local.region && known->remote == extent.remote.region;
  if (!same) {
    Known learned;
    if (!learn(operation, op, extent, learned)) return false;
    known = &keep(place, learned);
  }
  if (known->by == nullptr) return false;

  const std::uint64_t length = extent.local.length;
  if (!known->here->is_live(known->local.generation) || !known->there->is_live(known->remote.generation) ||
      !lies_in(known->here_bytes, extent.local.offset, length) ||
      !lies_in(known->there_bytes, extent.remote.offset, length))
    return false;

  Link& link = links_[known->link];
  const transport::SmallMove small{
      op, immediate, link.id, known->address + extent.local.offset, known->remote_handle, extent.remote.offset, length};
  const bool timed = count_ % kTimed == 0;
  const Time begin = timed ? clock_.now() : 0;
  const transport::AtOnce answer = known->by->move_now(small);
  if (answer == transport::AtOnce::never) known->by = nullptr;
  if (answer != transport::AtOnce::done) return false;
  ++count_;
  if (timed) took_ = clock_.now() - begin;
  ++link.slices;
  link.bytes_out += length;
  if (op == transport::Op::write_immediate) ++link.immediates_posted;
  past.operation = operation;
  past.link = known->link;
  past.place = known->place;
  past.far_place = known->far_place;
  past.peer = peer_.id();
  past.bytes = length;
  past.at = peer_.now();
  past.took = took_;
  return true;
}

}  // namespace fairway::engine

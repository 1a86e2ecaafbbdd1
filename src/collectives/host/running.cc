#include "collectives/host/running.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace fairway::collectives {
namespace {

constexpr std::uint64_t kLongMessage = 32U << 10;      // bytes, that are worth a second piece
constexpr std::uint64_t kWorthRegistering = 1U << 20;  // bytes of all such messages

Header header_for(const Collective& call, const Shape& shape, std::uint64_t number) {
  Header header;
  header.operation = number;
  header.kind = call.kind;
  if (call.kind == CollectiveKind::barrier) return header;
  header.type = call.type;
  header.algorithm = shape.algorithm;
  if (call.kind != CollectiveKind::all_to_allv) header.count = call.count;
  const bool combines = call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::reduce ||
                        call.kind == CollectiveKind::reduce_scatter;
  if (combines) header.reduction = call.reduction;
  if (combines && call.reduction == Reduction::custom) header.type = DataType::u8;  // says nothing
  header.element_bytes = static_cast<std::uint32_t>(shape.element_bytes);
  header.ordered = shape.ordered ? 1 : 0;
  header.local = shape.local ? 1 : 0;
  const bool rooted = call.kind == CollectiveKind::reduce || call.kind == CollectiveKind::broadcast ||
                      call.kind == CollectiveKind::gather || call.kind == CollectiveKind::scatter;
  if (rooted) header.root = call.root;
  if (call.kind == CollectiveKind::all_to_all) header.root = shape.in_place ? 1 : 0;  // another order of messages
  return header;
}

// The first piece of a block is copied, behind the header that says what follows.
bool may_go_in_place(const Step& step) {
  return step.continues && step.bytes >= kLongMessage && step.from.buffer != Buffer::scratch;
}

bool same_call(const Header& a, const Header& b) {
  return a.operation == b.operation && a.kind == b.kind && a.type == b.type && a.reduction == b.reduction &&
         a.algorithm == b.algorithm && a.root == b.root && a.count == b.count && a.element_bytes == b.element_bytes &&
         a.ordered == b.ordered && a.local == b.local;
}

}  // namespace

std::string call_text(const Header& header) {
  std::string text(to_string(header.kind));
  if (header.kind == CollectiveKind::barrier) return text;
  switch (header.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: text += fmt::format(" ({})", to_string(header.reduction)); break;
    default: break;
  }
  const std::string type = header.reduction == Reduction::custom
                               ? fmt::format("elements of {} bytes", header.element_bytes)
                               : std::string(to_string(header.type));
  text += header.kind == CollectiveKind::all_to_allv ? " of " + type : fmt::format(" of {} {}", header.count, type);
  switch (header.kind) {
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::scatter: text += fmt::format(" with root {}", header.root); break;
    case CollectiveKind::all_to_all: text += header.root != 0 ? " in place" : ""; break;
    default: break;
  }
  return text + fmt::format(" by {}{}{}", to_string(header.algorithm),
                            header.ordered != 0 ? " in the order of ranks" : "",
                            header.local != 0 ? ", with local completion" : "");
}

Running::Running(const Collective& call, const Shape& shape, std::uint64_t number, Schedule schedule)
    : header_(header_for(call, shape, number)),
      timeout_(call.timeout),
      width_(shape.element_bytes),
      custom_(call.custom),
      factor_(call.factor),
      in_place_(shape.in_place),
      call_(call),
      input_(static_cast<std::byte*>(const_cast<void*>(call.input))),  // only read
      output_(static_cast<std::byte*>(call.output)),
      scratch_(schedule.scratch_bytes),
      combine_(combine_of(call.type, call.reduction)),
      schedule_(std::move(schedule)) {}

bool Running::has_shape_of(const Collective& call) const {
  return call.kind == call_.kind && call.kind != CollectiveKind::all_to_allv && call.count == call_.count &&
         call.type == call_.type && call.reduction == call_.reduction && call.root == call_.root &&
         call.algorithm == call_.algorithm && call.reproducible == call_.reproducible &&
         call.local_completion == call_.local_completion &&
         (call.factor == call_.factor || header_.reduction == Reduction::premul_sum) &&
         (call.reduction != Reduction::custom ||
          (call.custom.combine == custom_.combine && call.custom.context == custom_.context &&
           call.custom.element_bytes == custom_.element_bytes));
}

void Running::again(const Collective& call, std::uint64_t number) {
  header_.operation = number;
  timeout_ = call.timeout;
  factor_ = call.factor;
  input_ = static_cast<std::byte*>(const_cast<void*>(call.input));
  output_ = static_cast<std::byte*>(call.output);
  scratch_.resize(schedule_.scratch_bytes);
  next_ = 0;
  deadline = first_look = second_look = settled = Time::max();
  begun = waited = looked_once = looked_twice = looks_last = false;
}

std::byte* Running::at(Place place) {
  switch (place.buffer) {
    case Buffer::input: return input_ + place.at;
    case Buffer::output: return output_ + place.at;
    case Buffer::scratch: break;
  }
  return scratch_.data() + place.at;
}

std::string Running::phase() const {
  return fmt::format("step {} of {}", step(), steps());
}

Fault Running::advance(Lanes& lanes, Blocked& blocked) {
  blocked = {};
  Fault fault = go_on(lanes, blocked);
  lanes.wake_sleepers();
  if (!fault.status || blocked.on != Blocked::On::nothing) return fault;
  int peer = -1;
  if (Status status = lanes.collect(peer); !status) return {peer, status};
  blocked = lanes.outgoing_left();
  return {};
}

Fault Running::go_on(Lanes& lanes, Blocked& blocked) {
  for (; next_ < schedule_.steps.size(); ++next_) {
    const Step& step = schedule_.steps[next_];
    const bool sends = step.kind == Step::Kind::send;
    if (!sends && !takes(step.kind)) {
      local(step, lanes.size());
      continue;
    }
    blocked = sends ? lanes.send_blocked(step.peer) : lanes.receive_blocked(step.peer);
    if (blocked.on == Blocked::On::transfer) {  // room for one more may be there, and was not collected
      int peer = -1;
      if (Status status = lanes.collect(peer); !status) return {peer, status};
      blocked = sends ? lanes.send_blocked(step.peer) : lanes.receive_blocked(step.peer);
    }
    if (blocked.on != Blocked::On::nothing) return {};
    Fault fault = sends ? send(lanes, step) : take(lanes, step);
    if (!fault.status && fault.status.code() == ErrorCode::queue_full) {  // others filled the engine in between
      blocked = {Blocked::On::transfer, step.peer, 0, 0, {}};
      return {};
    }
    if (!fault.status) return fault;
  }
  return {};
}

// Recursive doubling, and what is done in place block by block, write where they have just sent from. In the others a
// part that is sent and written again is written with what the receivers have made of it: they have it by then.
bool Running::changes_what_it_sends() const {
  switch (header_.kind) {
    case CollectiveKind::all_reduce:
      return header_.algorithm == Algorithm::recursive_doubling ||
             (header_.algorithm == Algorithm::one_shot && in_place_);
    case CollectiveKind::all_to_all: return header_.root != 0;
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_allv: return false;
    case CollectiveKind::reduce_scatter: return header_.algorithm != Algorithm::direct;
    case CollectiveKind::barrier:
    case CollectiveKind::reduce: break;
  }
  return true;
}

void Running::send_in_place(Lanes& lanes) {
  if (changes_what_it_sends()) return;
  std::uint64_t in = 0, out = 0, all = 0;  // how far it sends from each; bytes that it sends
  for (const Step& step : schedule_.steps) {
    if (step.kind != Step::Kind::send || !may_go_in_place(step) || lanes.is_mapped(step.peer)) continue;
    std::uint64_t& end = step.from.buffer == Buffer::input ? in : out;
    end = std::max(end, step.from.at + step.bytes);
    all += step.bytes;
  }
  if (all < kWorthRegistering) return;
  Engine& engine = lanes.engine();
  if (in != 0)
    if (const auto made = engine.register_memory(input_, in, Access::none)) own_input_ = *made;
  if (out != 0)
    if (const auto made = engine.register_memory(output_, out, Access::none)) own_output_ = *made;
}

Status Running::release(Engine& engine) {
  Status status;
  for (Region* region : {&own_input_, &own_output_}) {
    if (!region->id) continue;
    Status ended = engine.deregister(*region);
    if (ended)
      region->id = {};
    else
      status = std::move(ended);
  }
  return status;
}

Slice Running::registered(const Step& step) const {
  if (!may_go_in_place(step)) return {};
  const Region& region = step.from.buffer == Buffer::input ? own_input_ : own_output_;
  return region.id ? Slice{region.id, step.from.at, step.bytes} : Slice{};
}

Fault Running::send(Lanes& lanes, const Step& step) {
  header_.bytes = static_cast<std::uint32_t>(step.bytes);
  header_.of = step.of;
  if (const Slice from = lanes.is_mapped(step.peer) ? Slice{} : registered(step); from.region)
    return {step.peer, lanes.send_rest_from(step.peer, from)};
  return {step.peer, lanes.send(step.peer, header_, step.bytes == 0 ? nullptr : at(step.from))};
}

Fault Running::take(Lanes& lanes, const Step& step) {
  if (!lanes.is_of_this_call(step.peer, step.of, step.continues)) {
    const auto header = lanes.header_of(step.peer);
    if (!header) return {step.peer, header.status()};
    if (Fault fault = compare(lanes, step.peer, *header, step); !fault.status) return fault;
  }
  const std::byte* const payload = lanes.payload_of(step.peer, step.bytes);
  if (step.bytes != 0) switch (step.kind) {
      case Step::Kind::reduce: combine(at(step.into), at(step.from), payload, step.bytes); break;
      case Step::Kind::reduce_first: combine(at(step.into), payload, at(step.from), step.bytes); break;
      case Step::Kind::receive_wide: widen(wide_at(step.into), payload, header_.type, step.bytes); break;
      case Step::Kind::reduce_wide:
        combine_wide(wide_at(step.into), payload, header_.type, header_.reduction, step.bytes);
        break;
      default: copy_bytes(step, payload);
    }
  lanes.done_with(step.peer);
  return {};
}

void Running::copy_bytes(const Step& step, const std::byte* from) {
  if (step.past_caches)
    copy_past_caches(at(step.into), from, step.bytes);
  else
    std::memcpy(at(step.into), from, step.bytes);
}

void Running::combine(std::byte* into, const std::byte* a, const std::byte* b, std::size_t bytes) const {
  if (header_.reduction == Reduction::custom)
    custom_.combine(into, a, b, bytes / width_, custom_.context);
  else
    combine_(into, a, b, bytes / width_);
}

void Running::local(const Step& step, int size) {
  if (step.bytes == 0) return;  // the caller's memory of no bytes may be null
  switch (step.kind) {
    case Step::Kind::copy: copy_bytes(step, at(step.from)); break;
    case Step::Kind::fold: combine(at(step.into), at(step.into), at(step.from), step.bytes); break;
    case Step::Kind::widen: widen(wide_at(step.into), at(step.from), header_.type, step.bytes); break;
    case Step::Kind::fold_wide:
      combine_wide(wide_at(step.into), at(step.from), header_.type, header_.reduction, step.bytes);
      break;
    case Step::Kind::narrow:
      narrow(at(step.into), wide_at(step.from), header_.type, step.bytes,
             header_.reduction == Reduction::average ? static_cast<float>(size) : 1.0F);
      break;
    case Step::Kind::finish:
      divide(at(step.into), header_.type, step.bytes / width_, static_cast<std::uint32_t>(size));
      break;
    case Step::Kind::scale: scale(at(step.into), at(step.from), header_.type, step.bytes / width_, factor_); break;
    default: break;
  }
}

Fault Running::compare(Lanes& lanes, int peer, const Header& header, const Step& step) const {
  const std::string& name = lanes.members()[static_cast<std::size_t>(peer)].name;
  if (!same_call(header, header_)) {
    std::string text = fmt::format("{} called {}, {} called {}", name, call_text(header),
                                   lanes.members()[static_cast<std::size_t>(lanes.rank())].name, call_text(header_));
    if (header.operation != header_.operation)
      text = fmt::format("{} is in operation {} ({}) where operation {} ({}) is expected", name, header.operation,
                         call_text(header), header_.operation, call_text(header_));
    return {peer, {ErrorCode::invalid_argument, text}};
  }
  if (header.of == step.of && (header.bytes == step.bytes || lanes.is_mapped(peer))) return {};
  return {peer,
          {ErrorCode::invalid_argument,
           fmt::format("{} sends {} bytes to {}, which expects {}", name, header.of,
                       lanes.members()[static_cast<std::size_t>(lanes.rank())].name, step.of)}};
}

}  // namespace fairway::collectives

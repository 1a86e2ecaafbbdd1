#include "nccl_net/connection.h"

#include <algorithm>

#include "nccl_net/machine.h"

namespace fairway::nccl {

// NCCL passes sizes as int; the longest message (abi::kMostBytes) fits.
abi::Code Connection::test(Request& request, int* done, int* sizes) {
  *done = 0;
  if (request.state.load(std::memory_order_acquire) != Request::State::done) {
    endpoint_->pump();
    const bool gone = failed();  // read this before the state: a completion that came before the failure counts,
                                 // whichever thread pumped it
    if (request.state.load(std::memory_order_acquire) != Request::State::done)
      return gone ? report("test") : abi::kSuccess;
  }
  if (sizes != nullptr)
    for (std::uint32_t i = 0; i < request.parts; ++i) sizes[i] = static_cast<int>(request.bytes[i]);
  *done = 1;
  request.state.store(Request::State::free, std::memory_order_release);
  return abi::kSuccess;
}

abi::Code Connection::close() {
  const auto self = shared_from_this();
  endpoint_->remove(id());
  PortId other;
  {
    const std::lock_guard lock(mutex_);
    other = other_;
  }
  if (other.generation != 0) {
    Message message;
    message.kind = Message::Kind::closed;
    endpoint_->post_until_accepted(peer_, other, message);
  }
  end();
  return abi::kSuccess;
}

void Connection::on_peer_down(PeerId peer, const Status& reason) {
  if (peer == peer_) fail(reason);
}

void Connection::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = status;
  failed_.store(true, std::memory_order_release);
}

abi::Code Connection::report(const char* doing) {
  Status status;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    status = failure_;
    first = !reported_;
    reported_ = true;
  }
  if (first) endpoint_->log().warn(std::string(doing) + ": " + status.to_string());
  return code_of(status);
}

// ---- the receiving end ----

namespace {

// Resolves memory that NCCL named to a slice of a registered region.
Result<Slice> slice_of(const Memory& memory, const void* data, std::size_t size) {
  const auto* at = static_cast<const std::byte*>(data);
  const Region& region = memory.region;
  if (size == 0) return Slice{region.id, 0, 0};
  if (at < region.address || size > region.size_bytes ||
      static_cast<std::uint64_t>(at - region.address) > region.size_bytes - size)
    return Status(ErrorCode::out_of_range, "NCCL passed memory outside of the region that it registered");
  return Slice{region.id, static_cast<std::uint64_t>(at - region.address), size};
}

using Alive = std::shared_ptr<Connection>;

}  // namespace

abi::Code Receiver::receive(int count, void** data, const std::size_t* sizes, const int* tags, void** memory,
                            Request** request) {
  *request = nullptr;
  if (failed()) return report("irecv");
  Request& slot = requests_[next_ % requests_.size()];
  if (slot.state.load(std::memory_order_acquire) != Request::State::free) return abi::kSuccess;
  Message message;
  message.kind = Message::Kind::post;
  message.from = id();
  message.sequence = next_;
  message.count = static_cast<std::uint8_t>(count);
  Status status;
  if (count < 1 || count > abi::kMostReceives)
    status = {ErrorCode::invalid_argument,
              "irecv of " + std::to_string(count) + " messages: at most 8 fit in one grouped receive"};
  for (int i = 0; i < count && status; ++i) {
    auto& each = *static_cast<Memory*>(memory[i]);
    const auto slice = slice_of(each, data[i], sizes[i]);
    status = !slice ? slice.status() : endpoint_->publish(each);
    if (sizes[i] > abi::kMostBytes)
      status = {ErrorCode::out_of_range, "receive of " + std::to_string(sizes[i]) + " bytes: maxP2pBytes is 1 GiB"};
    if (status) message.places[i] = {slice->region, slice->offset, slice->length, tags[i]};
  }
  if (!status) {
    fail(status);
    return report("irecv");
  }
  slot.sequence = next_;
  slot.parts = static_cast<std::uint32_t>(count);
  slot.here = 0;
  slot.state.store(Request::State::pending,
                   std::memory_order_release);  // before post(): the answer may arrive before post() returns
  auto alive = std::make_unique<Alive>(shared_from_this());
  const auto taken = endpoint_->post(peer_, other_, message, posted, alive.get());
  if (taken && *taken) {
    (void)alive.release();  // posted() owns it now
    ++next_;
    *request = &slot;
    return abi::kSuccess;
  }
  slot.state.store(Request::State::free, std::memory_order_release);
  if (taken) return abi::kSuccess;
  fail(taken.status());
  return report("irecv");
}

void Receiver::posted(const Completion& completion, void* self) {
  const std::unique_ptr<Alive> alive(static_cast<Alive*>(self));
  if (!completion.status) static_cast<Receiver&>(**alive).fail(completion.status);
}

void Receiver::on_message(const Message& message, PeerId from) {
  if (from != peer_) return;
  Request& request = requests_[message.sequence % requests_.size()];
  const bool fits = request.state.load(std::memory_order_acquire) == Request::State::pending &&
                    request.sequence == message.sequence && message.part < request.parts &&
                    (request.here >> message.part & 1) == 0;
  switch (message.kind) {
    case Message::Kind::done:
      if (!fits || message.bytes > abi::kMostBytes)
        return fail({ErrorCode::protocol_error, "the sender completed a receive that is not posted"});
      endpoint_->on_received(message.bytes);
      request.bytes[message.part] = message.bytes;
      request.here |= 1u << message.part;
      if (request.here == (1u << request.parts) - 1)
        request.state.store(Request::State::done, std::memory_order_release);
      return;
    case Message::Kind::failed:
      return fail(
          {ErrorCode::truncated, "message truncated: the sender's message has " + std::to_string(message.bytes) +
                                     " bytes, more than this receive takes: do all ranks call with the same sizes?"});
    case Message::Kind::closed: return fail({ErrorCode::closed, "the sending rank closed this connection"});
    default: return fail({ErrorCode::protocol_error, "unexpected message from the sender"});
  }
}

// ---- the sending end ----

void Sender::on_message(const Message& message, PeerId from) {
  if (from != peer_) return;
  switch (message.kind) {
    case Message::Kind::post: return on_post(message);
    case Message::Kind::refused:
      return fail({ErrorCode::unreachable, "the receiving rank has stopped listening for this connection"});
    case Message::Kind::closed: receiver_closed_.store(true, std::memory_order_release); return;
    default: return fail({ErrorCode::protocol_error, "unexpected message from the receiver"});
  }
}

void Sender::on_post(const Message& message) {
  {
    const std::lock_guard lock(mutex_);
    Group& group = groups_[message.sequence % kGroups];
    if (message.sequence - head_ < kGroups && !group.here) {
      other_ = message.from;
      group = {true, message.count, 0, message.places};
      for (std::uint32_t i = 0; i < group.count; ++i)
        if (group.places[i].size != 0) (void)import(group.places[i].region);
      return;
    }
  }
  fail({ErrorCode::protocol_error, "the receiver posted a group twice, or more groups than allowed"});
}

// Matches a send to the first posted receive with its tag. Groups with other tags do not block it.
Sender::Match Sender::match(int tag) {
  for (std::uint32_t sequence = head_; sequence != head_ + kGroups; ++sequence) {
    Group& group = groups_[sequence % kGroups];
    if (!group.here) return {};  // its message may still arrive, after later ones
    for (std::uint32_t part = 0; part < group.count; ++part)
      if (group.places[part].tag == tag && (group.used >> part & 1) == 0) return {&group, sequence, part};
  }
  return {};
}

abi::Code Sender::send(void* data, std::size_t size, int tag, Memory& memory, Request** out) {
  *out = nullptr;
  endpoint_->pump();
  if (receiver_closed_.load(std::memory_order_acquire))
    fail({ErrorCode::closed, "the receiving rank closed this connection"});
  if (failed()) return report("isend");
  const auto request = std::find_if(requests_.begin(), requests_.end(), [](const Request& each) {
    return each.state.load(std::memory_order_acquire) == Request::State::free;
  });
  if (request == requests_.end()) return abi::kSuccess;
  const auto local = slice_of(memory, data, size);
  Status status = local.status();
  Extent extent;
  if (status) {
    const std::lock_guard lock(mutex_);
    const Match found = match(tag);
    if (found.group == nullptr) return abi::kSuccess;
    const Place& place = found.group->places[found.part];
    Message message;
    message.kind = size > place.size ? Message::Kind::failed : Message::Kind::done;
    message.part = static_cast<std::uint8_t>(found.part);
    message.to_generation = other_.generation;
    message.sequence = found.sequence;
    message.bytes = size;
    if (size > place.size) {
      endpoint_->post_until_accepted(peer_, other_, message);
      status = {ErrorCode::truncated, "a message of " + std::to_string(size) + " bytes for a receive of " +
                                          std::to_string(place.size) + ": do all ranks call with the same sizes?"};
    } else {
      Import* target = size == 0 ? nullptr : import(place.region);
      if (size != 0 && target == nullptr) return abi::kSuccess;
      MessageBytes bytes;
      RequestOptions options;
      options.notify = notify_event(other_.index, format(message, bytes));
      options.deliver = Deliver::to_callback;
      options.callback = finished;
      options.user_data = &*request;
      Layout layout = std::span<const Extent>();
      if (size != 0) layout = extent = {*local, {target->region.id, place.offset}};
      request->parts = 1;
      request->bytes[0] = size;
      request->target = size == 0 ? RegionId{} : place.region;
      request->alive = shared_from_this();
      request->state.store(Request::State::pending, std::memory_order_relaxed);
      endpoint_->on_send(size);
      const auto id = endpoint_->engine().write(peer_, layout, options);
      if (id) {
        if (target != nullptr) {
          ++target->in_flight;
          target->used = ++sends_;
        }
        found.group->used |= 1u << found.part;
        while (groups_[head_ % kGroups].here &&
               groups_[head_ % kGroups].used == (1u << groups_[head_ % kGroups].count) - 1)
          groups_[head_++ % kGroups].here = false;
        *out = &*request;
      } else {
        endpoint_->on_sent();
        request->alive.reset();
        request->state.store(Request::State::free, std::memory_order_relaxed);
        if (id.status().code() == ErrorCode::queue_full) return abi::kSuccess;
        status = id.status();
      }
    }
  }
  if (!status) {
    fail(status);
    return report("isend");
  }
  if (size != 0 && sends_ == 1) tell_route(extent);
  return abi::kSuccess;
}

void Sender::finished(const Completion& completion, void* user_data) {
  auto& request = *static_cast<Request*>(user_data);
  const std::shared_ptr<Connection> alive = std::move(request.alive);
  auto& self = static_cast<Sender&>(*alive);
  self.endpoint_->on_sent();
  {
    const std::lock_guard lock(self.mutex_);
    if (const auto found = self.imports_.find(request.target); found != self.imports_.end()) --found->second.in_flight;
  }
  if (!completion.status) return self.fail(completion.status);
  request.state.store(Request::State::done, std::memory_order_release);
}

// ---- the peer's memory ----

Sender::Import* Sender::import(RegionId region) {
  const auto found = imports_.find(region);
  if (found != imports_.end()) return found->second.state == Import::State::ready ? &found->second : nullptr;
  evict_import();
  imports_[region] = {};
  ask(region);
  return nullptr;
}

void Sender::ask(RegionId region) {
  endpoint_->later(peer_, [self = std::static_pointer_cast<Sender>(shared_from_this()), region] {
    self->imported(region, self->endpoint_->import(self->peer_, region));
  });
}

void Sender::imported(RegionId region, const Result<RemoteRegion>& found) {
  if (!found) return fail(found.status().with_context("cannot import the receiver's memory"));
  const std::lock_guard lock(mutex_);
  const auto entry = imports_.find(region);
  if (entry == imports_.end()) return release(*found);  // the connection was closed meanwhile
  entry->second.region = *found;
  entry->second.state = Import::State::ready;
}

// Runs as a task: it waits for the engine's thread, which may be waiting for mutex_.
void Sender::release(const RemoteRegion& region) {
  endpoint_->later(peer_, [endpoint = endpoint_, region] { endpoint->release(region); });
}

// Evicts the import that was used longest ago: NCCL registers and deregisters user memory, and unused imports would
// pile up.
void Sender::evict_import() {
  if (imports_.size() < kMostImports) return;
  auto oldest = imports_.end();
  for (auto each = imports_.begin(); each != imports_.end(); ++each)
    if (each->second.state == Import::State::ready && each->second.in_flight == 0 &&
        (oldest == imports_.end() || each->second.used < oldest->second.used))
      oldest = each;
  if (oldest == imports_.end()) return;
  release(oldest->second.region);
  imports_.erase(oldest);
}

void Sender::end() {
  Imports imports;
  {
    const std::lock_guard lock(mutex_);
    imports.swap(imports_);
  }
  for (const auto& [region, import] : imports)
    if (import.state == Import::State::ready) release(import.region);
}

// A task: to explain waits for the engine's thread, and the first time for the reading of the machine.
void Sender::tell_route(const Extent& extent) {
  if (!endpoint_->log().informs()) return;
  endpoint_->later(peer_, [endpoint = endpoint_, peer = peer_, extent] {
    fairway::Request request;
    request.peer = peer;
    request.layout = extent;
    const auto plan = endpoint->engine().explain(request);
    endpoint->log().info(plan ? route_text(*plan) : "the route is not known: " + plan.status().to_string());
  });
}

}  // namespace fairway::nccl

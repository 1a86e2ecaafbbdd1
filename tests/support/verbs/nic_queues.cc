#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "support/verbs/nic_world.h"

// The stand-in NICs' queue pairs: work requests are carried out when they are posted, and complete at the next poll.
namespace fairway::support::nic {
namespace {

constexpr int kLocalProtection = 4, kNotReady = 13;

void complete(abi::CompletionQueue* into, const abi::WorkCompletion& completion) {
  Queue& queue = of<Queue>(into);
  queue.done.push_back(completion);
  if (!std::exchange(queue.armed, false) || into->channel == nullptr) return;
  of<Channel>(into->channel).events.push_back(into);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto told = ::write(into->channel->fd, &one, sizeof one);
}

}  // namespace

void to_error(Pair& pair) {
  pair.pair.state = abi::kError;
  if (!world().settings.flushes) return;
  for (const Receive& each : pair.receives) {
    abi::WorkCompletion completion{};
    completion.id = each.id;
    completion.status = abi::kFlushed;
    complete(pair.pair.receive_queue, completion);
  }
  pair.receives.clear();
}

namespace {

void end_access(Pair& pair) {
  pair.receives.clear();
  for (const int gpu : {0, 1}) arrive(gpu, false);
}

// The address of the bytes [address, address + size) for a key of that domain; null: access denied.
unsigned char* reach(std::uint32_t key, const abi::ProtectionDomain* domain, std::uint64_t address, std::uint64_t size,
                     int needed, Region** found = nullptr) {
  const auto at = world().regions.find(key);
  if (at == world().regions.end()) return nullptr;
  Region& region = *at->second;
  const auto base = reinterpret_cast<std::uint64_t>(region.region.address);
  if (region.region.domain != domain || (region.access & needed) != needed || address < base ||
      size > region.region.length || address - base > region.region.length - size)
    return nullptr;
  if (found != nullptr) *found = &region;
  return region.bytes + (address - base);
}

void put(const Region& into, unsigned char* to, const unsigned char* from, std::size_t size) {
  if (into.gpu < 0)
    std::memcpy(to, from, size);
  else
    world().posted.push_back({into.gpu, to, {from, from + size}});
}

void look_over_the_bus(const Region& at) {
  if (at.gpu < 0) return;
  ++world().counts.reads_of_gpus;
  arrive(at.gpu, true);
}

// Gathers the bytes of a send. False: a part is not this side's memory.
bool collect(const Pair& pair, const abi::SendRequest& request, std::vector<unsigned char>& out) {
  for (int i = 0; i < request.gather_count; ++i) {
    const abi::Gather& part = request.gather[i];
    const unsigned char* from = reinterpret_cast<const unsigned char*>(part.address);  // inline data: read by the CPU
    if ((request.flags & abi::kInline) == 0) {
      Region* region = nullptr;
      from = reach(part.lkey, pair.pair.domain, part.address, part.length, 0, &region);
      if (from == nullptr) return false;
      look_over_the_bus(*region);
    }
    out.insert(out.end(), from, from + part.length);
  }
  if ((request.flags & abi::kInline) != 0) {
    std::atomic<std::uint64_t>& largest = counts().largest_inline;
    largest = std::max<std::uint64_t>(largest, out.size());
  }
  return true;
}

bool spread(const Pair& pair, const abi::SendRequest& request, const unsigned char* from) {
  for (int i = 0; i < request.gather_count; ++i) {
    const abi::Gather& part = request.gather[i];
    Region* region = nullptr;
    auto* to = reach(part.lkey, pair.pair.domain, part.address, part.length, abi::kLocalWrite, &region);
    if (to == nullptr) return false;
    if (region->gpu >= 0 && std::getenv("FAIRWAY_STANDIN_UNORDERED") != nullptr)
      world().posted.push_back({region->gpu, to, {from, from + part.length}});
    else
      std::memcpy(to, from, part.length);
    from += part.length;
  }
  return true;
}

int receive(Pair& by, const abi::SendRequest& request, int opcode, const std::vector<unsigned char>* message) {
  if (by.receives.empty()) return kNotReady;
  const Receive receive = by.receives.front();
  by.receives.pop_front();
  abi::WorkCompletion completion{};
  completion.id = receive.id;
  completion.opcode = opcode;
  completion.immediate = request.immediate;
  completion.flags = abi::kWithImmediate;
  if (message != nullptr) {
    auto* to = reach(receive.place.lkey, by.pair.domain, receive.place.address, message->size(), abi::kLocalWrite);
    if (to == nullptr || message->size() > receive.place.length) return abi::kRemoteInvalid;
    if (!message->empty()) std::memcpy(to, message->data(), message->size());
    completion.length = static_cast<std::uint32_t>(message->size());
  }
  complete(by.pair.receive_queue, completion);
  return abi::kSuccess;
}

int carry_out(Pair& pair, Pair& peer, const abi::SendRequest& request) {
  std::uint64_t size = 0;
  for (int i = 0; i < request.gather_count; ++i) size += request.gather[i].length;
  std::vector<unsigned char> bytes;
  Region* region = nullptr;
  switch (request.opcode) {
    case abi::kWrite:
    case abi::kWriteImmediate: {
      if (!collect(pair, request, bytes)) return kLocalProtection;
      const auto& remote = request.remote.rdma;
      unsigned char* to = reach(remote.rkey, peer.pair.domain, remote.address, size, abi::kRemoteWrite, &region);
      if (to == nullptr && size != 0) return abi::kRemoteAccess;
      if (size != 0) put(*region, to, bytes.data(), size);
      return request.opcode == abi::kWrite ? int{abi::kSuccess}
                                           : receive(peer, request, abi::kReceivedImmediate, nullptr);
    }
    case abi::kSendImmediate:
      if (!collect(pair, request, bytes)) return kLocalProtection;
      return receive(peer, request, abi::kReceived, &bytes);
    case abi::kRead: {
      const auto& remote = request.remote.rdma;
      unsigned char* from = reach(remote.rkey, peer.pair.domain, remote.address, size, abi::kRemoteRead, &region);
      if (from == nullptr && size != 0) return abi::kRemoteAccess;
      if (size == 0) return abi::kSuccess;
      look_over_the_bus(*region);
      return spread(pair, request, from) ? int{abi::kSuccess} : kLocalProtection;
    }
    case abi::kFetchAdd:
    case abi::kCompareSwap: {
      const auto& remote = request.remote.atomic;
      unsigned char* at = reach(remote.rkey, peer.pair.domain, remote.address, 8, abi::kRemoteAtomic, &region);
      if (at == nullptr || region->gpu >= 0) return abi::kRemoteAccess;
      std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at));
      std::uint64_t old = remote.compare_add;
      if (request.opcode == abi::kFetchAdd)
        old = word.fetch_add(remote.compare_add);
      else
        word.compare_exchange_strong(old, remote.swap);
      unsigned char result[8];
      std::memcpy(result, &old, sizeof old);
      return spread(pair, request, result) ? int{abi::kSuccess} : kLocalProtection;
    }
    default: return kLocalProtection;
  }
}

int post_send(abi::QueuePair* handle, abi::SendRequest* first, abi::SendRequest** bad) {
  const std::lock_guard lock(world().mutex);
  Pair& pair = of<Pair>(handle);
  for (abi::SendRequest* request = first; request != nullptr; request = request->next) {
    if (pair.pair.state != abi::kReadyToSend && pair.pair.state != abi::kError) {
      *bad = request;
      return EINVAL;
    }
    if (pair.sends_taken == settings().most_sends) {
      *bad = request;
      return ENOMEM;
    }
    ++pair.sends_taken;
    if (pair.pair.state == abi::kError && !settings().flushes) continue;
    abi::WorkCompletion completion{};
    completion.id = request->id;
    if (pair.pair.state == abi::kError) {
      completion.status = abi::kFlushed;
    } else {
      const auto found = world().pairs.find(pair.peer);
      Pair* peer = found == world().pairs.end() ? nullptr : found->second;
      const bool hears =
          peer != nullptr && (peer->pair.state == abi::kReadyToReceive || peer->pair.state == abi::kReadyToSend);
      completion.status = hears ? carry_out(pair, *peer, *request) : int{abi::kRetriesExceeded};
      const int status = completion.status;
      if (status == abi::kRemoteAccess || status == abi::kRemoteInvalid) to_error(*peer);
      if (status != abi::kSuccess) to_error(pair);
    }
    if (completion.status != abi::kSuccess || (request->flags & abi::kSignaled) != 0)
      complete(pair.pair.send_queue, completion);
  }
  return 0;
}

int post_receive(abi::QueuePair* handle, abi::ReceiveRequest* first, abi::ReceiveRequest** bad) {
  const std::lock_guard lock(world().mutex);
  Pair& pair = of<Pair>(handle);
  for (abi::ReceiveRequest* request = first; request != nullptr; request = request->next) {
    if (pair.receives_taken == settings().most_receives) {
      *bad = request;
      return ENOMEM;
    }
    ++pair.receives_taken;
    pair.receives.push_back({request->id, request->gather_count == 0 ? abi::Gather{} : request->gather[0]});
  }
  if (pair.pair.state == abi::kError) to_error(pair);
  return 0;
}

int poll(abi::CompletionQueue* handle, int most, abi::WorkCompletion* into) {
  const std::lock_guard lock(world().mutex);
  Queue& queue = of<Queue>(handle);
  int count = 0;
  for (; count < most && !queue.done.empty(); ++count) {
    into[count] = queue.done.front();
    queue.done.pop_front();
  }
  return count;
}

int arm(abi::CompletionQueue* handle, int) {
  const std::lock_guard lock(world().mutex);
  of<Queue>(handle).armed = true;
  return 0;
}

abi::CompletionChannel* create_channel(abi::Context* context) {
  auto* made = new Channel;
  made->channel = {context, ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE), 0};
  return &made->channel;
}
int get_event(abi::CompletionChannel* handle, abi::CompletionQueue** queue, void** user) {
  const std::lock_guard lock(world().mutex);
  std::uint64_t one = 0;
  if (::read(handle->fd, &one, sizeof one) != sizeof one) return -1;
  *queue = of<Channel>(handle).events.front();
  *user = nullptr;
  of<Channel>(handle).events.pop_front();
  return 0;
}
abi::CompletionQueue* create_queue(abi::Context* context, int entries, void* user, abi::CompletionChannel* channel,
                                   int) {
  auto* made = new Queue;
  made->queue.context = context;
  made->queue.channel = channel;
  made->queue.user = user;
  made->queue.entries = entries;
  return &made->queue;
}
abi::QueuePair* create_pair(abi::ProtectionDomain* domain, abi::QueuePairOptions* options) {
  const std::lock_guard lock(world().mutex);
  if (options->limits.inline_bytes > settings().takes_inline) {
    errno = EINVAL;
    return nullptr;
  }
  auto* made = new Pair;
  made->pair.context = domain->context;
  made->pair.user = options->user;
  made->pair.domain = domain;
  made->pair.send_queue = options->send_queue;
  made->pair.receive_queue = options->receive_queue;
  made->pair.number = world().next++;
  world().pairs[made->pair.number] = made;
  return &made->pair;
}
int modify_pair(abi::QueuePair* handle, abi::QueuePairState* to, int mask) {
  if (to->state == abi::kReadyToReceive && settings().leading) settings().leading();
  if (to->state == abi::kError && settings().no_error_state != 0) return settings().no_error_state;
  if (to->state == abi::kReset && settings().no_reset != 0) return settings().no_reset;
  const std::lock_guard lock(world().mutex);
  Pair& pair = of<Pair>(handle);
  if (to->state == abi::kReadyToReceive)
    ++(to->address.is_global != 0 ? world().counts.global_paths : world().counts.local_paths);
  if ((mask & abi::kMaskPkey) != 0 && to->pkey_index >= world().nics[of<Open>(pair.pair.context).nic].partitions.size())
    return EINVAL;
  if ((mask & abi::kMaskMinRnrTimer) != 0) world().counts.rnr_timer = to->min_rnr_timer;
  if ((mask & abi::kMaskPeer) != 0) pair.peer = to->peer_number;
  if (to->state == abi::kError)
    to_error(pair);
  else
    pair.pair.state = to->state;
  if (to->state == abi::kReset) end_access(pair);
  return 0;
}
int destroy_pair(abi::QueuePair* handle) {
  if (settings().destroying) settings().destroying();
  if (settings().no_end != 0) return settings().no_end;
  const std::lock_guard lock(world().mutex);
  end_access(of<Pair>(handle));
  world().pairs.erase(handle->number);
  delete &of<Pair>(handle);
  return 0;
}

}  // namespace

void add_calls(abi::Context& context) {
  context.poll = &poll;
  context.request_notification = &arm;
  context.post_send = &post_send;
  context.post_receive = &post_receive;
}

void add_queues(transport::verbs::Library& table) {
  table.create_channel = &create_channel;
  table.destroy_channel = [](abi::CompletionChannel* channel) {
    ::close(channel->fd);
    delete &of<Channel>(channel);
    return 0;
  };
  table.create_queue = &create_queue;
  table.destroy_queue = [](abi::CompletionQueue* queue) {
    const std::lock_guard lock(world().mutex);
    std::uint64_t one = 0;
    if (queue->channel != nullptr)  // and the count of pending events
      for (auto left = std::erase(of<Channel>(queue->channel).events, queue); left > 0; --left)
        [[maybe_unused]] const auto taken = ::read(queue->channel->fd, &one, sizeof one);
    delete &of<Queue>(queue);
    return 0;
  };
  table.get_event = &get_event;
  table.acknowledge = [](abi::CompletionQueue*, unsigned) {};
  table.create_pair = &create_pair;
  table.modify_pair = &modify_pair;
  table.destroy_pair = &destroy_pair;
}

}  // namespace fairway::support::nic

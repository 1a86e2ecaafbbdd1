// size: one device, whose parts all know each other
#include "support/verbs/nic.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "support/cuda/exported.h"
#include "support/verbs/nic_world.h"

namespace fairway::support::nic {
namespace {

using transport::verbs::Library;

constexpr int kLocalProtection = 4, kNotReady = 13;

void arrive(int gpu, bool pushed) {
  std::erase_if(world().posted, [&](const OnItsWay& each) {
    if (each.gpu != gpu) return false;
    std::memcpy(each.to, each.bytes.data(), each.bytes.size());
    if (pushed) world().counts.pushed += each.bytes.size();
    return true;
  });
}

void complete(abi::CompletionQueue* into, const abi::WorkCompletion& completion) {
  Queue& queue = of<Queue>(into);
  queue.done.push_back(completion);
  if (!std::exchange(queue.armed, false) || into->channel == nullptr) return;
  of<Channel>(into->channel).events.push_back(into);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto told = ::write(into->channel->fd, &one, sizeof one);
}

void to_error(Pair& pair) {
  pair.pair.state = abi::kError;
  for (const Receive& each : pair.receives) {
    abi::WorkCompletion completion{};
    completion.id = each.id;
    completion.status = abi::kFlushed;
    complete(pair.pair.receive_queue, completion);
  }
  pair.receives.clear();
}

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

int post_receive(abi::QueuePair* handle, abi::ReceiveRequest* first, abi::ReceiveRequest**) {
  const std::lock_guard lock(world().mutex);
  Pair& pair = of<Pair>(handle);
  for (abi::ReceiveRequest* request = first; request != nullptr; request = request->next)
    pair.receives.push_back({request->id, request->gather_count == 0 ? abi::Gather{} : request->gather[0]});
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

abi::Device** list(int* count) {
  const std::lock_guard lock(world().mutex);
  auto** all = new abi::Device* [3] {};
  *count = 0;
  for (Nic& each : world().nics)
    if (each.plugged) all[(*count)++] = &each.device;
  return all;
}

abi::Context* open_device(abi::Device* device) {
  auto* made = new Open;
  made->nic = device == &world().nics[0].device ? 0 : 1;
  made->context.device = device;
  made->context.poll = &poll;
  made->context.request_notification = &arm;
  made->context.post_send = &post_send;
  made->context.post_receive = &post_receive;
  made->context.async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  const std::lock_guard lock(world().mutex);
  world().opened.push_back(made);
  return &made->context;
}
int close_device(abi::Context* context) {
  const std::lock_guard lock(world().mutex);
  std::erase(world().opened, &of<Open>(context));
  ::close(context->async_fd);
  delete &of<Open>(context);
  return 0;
}
int get_async_event(abi::Context* context, abi::AsyncEvent* event) {
  const std::lock_guard lock(world().mutex);
  ++world().nics[of<Open>(context).nic].asked_for_events;
  std::uint64_t one = 0;
  if (::read(context->async_fd, &one, sizeof one) != sizeof one) return -1;
  event->type = of<Open>(context).events.front();
  event->element.port = 1;
  of<Open>(context).events.pop_front();
  return 0;
}

int query_device(abi::Context*, abi::Limits* limits) {
  *limits = {};
  limits->ports = settings().ports;
  limits->gathers = limits->read_gathers = 16;
  limits->reads_in = limits->reads_out = 16;
  limits->atomics = abi::kAtomicsNone;
  return 0;
}
int query_port(abi::Context*, std::uint8_t, abi::PortState* state) {
  *state = {};
  state->state = abi::kPortActive;
  state->active_mtu = 5;
  state->gids = settings().ports;
  state->max_message = 1u << 30;
  state->link_layer = 2;
  state->speed = 32;
  state->width = 2;
  return 0;
}
ssize_t query_gids(abi::Context* context, abi::Gid* into, std::size_t, std::uint32_t, std::size_t) {
  const std::lock_guard lock(world().mutex);
  const auto network = world().nics[of<Open>(context).nic].network;
  if (!network) return 0;
  for (std::uint8_t i = 0; i < settings().ports; ++i) {
    into[i] = {};
    auto* bytes = reinterpret_cast<unsigned char*>(into[i].gid);
    bytes[10] = bytes[11] = 0xff;
    bytes[12] = 10;
    bytes[13] = *network;
    bytes[14] = i;
    bytes[15] = static_cast<unsigned char>(1 + of<Open>(context).nic);
    into[i].port = static_cast<std::uint8_t>(i + 1);
    into[i].type = 2;
  }
  return settings().ports;
}
int query_partition(abi::Context*, std::uint8_t, int, std::uint16_t* key) {
  *key = 0xffff;
  return 0;
}
int query_paging(abi::Context*, abi::PagingLimits* paging) {
  *paging = settings().paging;
  return 0;
}

// ---- memory ----

// The CUDA driver's entry points, real or stand-in; null: no driver is in use.
template <class Call>
Call of_driver(const char* name) {
  const char* driver = std::getenv("FAIRWAY_CUDA_DRIVER");
  void* loaded = driver == nullptr ? nullptr : ::dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  ::dlclose(loaded);
  return reinterpret_cast<Call>(::dlsym(loaded, name));
}

bool where(void* address, std::size_t size, standin::Exported& out) {
  const auto asks = of_driver<bool (*)(std::uint64_t, std::uint64_t, standin::Exported*)>("fairway_standin_where");
  return asks != nullptr && asks(reinterpret_cast<std::uint64_t>(address), size, &out);
}

void flushed(int gpu) {
  const std::lock_guard lock(world().mutex);
  arrive(gpu, false);
}

abi::MemoryRegion* add(abi::ProtectionDomain* domain, void* address, std::size_t size, unsigned char* bytes, int gpu,
                       int access) {
  if (settings().registering) settings().registering(size);
  if (settings().small == domain->context->device->name && size > settings().small_takes) {
    errno = ENOMEM;
    return nullptr;
  }
  if (gpu >= 0)
    if (const auto hears = of_driver<void (*)(void (*)(int))>("fairway_standin_on_flush")) hears(&flushed);
  const bool pins = gpu < 0 && (access & abi::kOnDemand) == 0;
  const std::lock_guard lock(world().mutex);
  const std::uint64_t pinned = pins ? size : 0;
  if (pinned > settings().most_pinned - std::min(world().pinned, settings().most_pinned)) {
    errno = ENOMEM;
    return nullptr;
  }
  world().pinned += pinned;
  auto* made = new Region;
  const std::uint32_t key = world().next++;
  made->region = {domain->context, domain, address, size, key, key, key};
  made->bytes = bytes;
  made->access = access;
  made->gpu = gpu;
  made->pinned = pinned;
  world().regions[key] = made;
  ++world().counts.regions;
  if ((access & abi::kOnDemand) != 0) ++world().counts.on_demand;
  return &made->region;
}

abi::MemoryRegion* register_region(abi::ProtectionDomain* domain, void* address, std::size_t size, int access) {
  if ((access & abi::kOnDemand) != 0 && (settings().paging.general == 0 || !settings().kernel_takes_on_demand)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  standin::Exported gpu;
  if (!where(address, size, gpu)) return add(domain, address, size, static_cast<unsigned char*>(address), -1, access);
  if (!settings().peer_memory || settings().refuses_gpus == domain->context->device->name) {
    errno = EFAULT;
    return nullptr;
  }
  ++world().counts.by_peer_memory;
  return add(domain, address, size, gpu.bytes, gpu.device, access);
}

abi::MemoryRegion* register_dmabuf(abi::ProtectionDomain* domain, std::uint64_t offset, std::size_t size,
                                   std::uint64_t address, int fd, int access) {
  standin::Exported says;
  errno = settings().refuses_gpus == domain->context->device->name ? EOPNOTSUPP : settings().dmabuf_error;
  if (errno != 0) return nullptr;
  errno = EBADF;
  if (::pread(fd, &says, sizeof says, 0) != sizeof says || says.magic != standin::Exported::kMagic) return nullptr;
  errno = EINVAL;
  constexpr std::uint64_t kPage = 4096;
  const int allowed = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead | abi::kRelaxedOrdering;
  const bool writes = (access & abi::kRemoteWrite) == 0 || (access & abi::kLocalWrite) != 0;
  if (size > says.size || offset > says.size - size || address % kPage != offset % kPage || (access & ~allowed) != 0 ||
      !writes)
    return nullptr;
  ++world().counts.by_dmabuf;
  return add(domain, reinterpret_cast<void*>(address), size, says.bytes + offset, says.device, access);
}

int deregister(abi::MemoryRegion* handle) {
  if (settings().deregistering) settings().deregistering(handle->length);
  const std::lock_guard lock(world().mutex);
  Region& region = of<Region>(handle);
  if (region.gpu >= 0) arrive(region.gpu, false);
  world().pinned -= region.pinned;
  world().regions.erase(handle->lkey);
  --world().counts.regions;
  delete &region;
  return 0;
}

// ---- queues ----

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
  const std::lock_guard lock(world().mutex);
  Pair& pair = of<Pair>(handle);
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
  const std::lock_guard lock(world().mutex);
  end_access(of<Pair>(handle));
  world().pairs.erase(handle->number);
  delete &of<Pair>(handle);
  return 0;
}

}  // namespace

Settings& settings() {
  return world().settings;
}

Counts& counts() {
  return world().counts;
}

bool break_pair(std::uint64_t user) {
  const std::lock_guard lock(world().mutex);
  for (const auto& [number, pair] : world().pairs) {
    if (reinterpret_cast<std::uintptr_t>(pair->pair.user) != user) continue;
    to_error(*pair);
    return true;
  }
  return false;
}

void befall(const std::string& nic, int event) {
  const std::lock_guard lock(world().mutex);
  for (Open* each : world().opened) {
    if (nic != each->context.device->name) continue;
    each->events.push_back(event);
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto told = ::write(each->context.async_fd, &one, sizeof one);
  }
}

void unplug(const std::string& nic) {
  const std::lock_guard lock(world().mutex);
  for (Nic& each : world().nics) each.plugged = each.plugged && nic != each.device.name;
}
std::size_t users(const std::string& nic) {
  const std::lock_guard lock(world().mutex);
  return static_cast<std::size_t>(
      std::ranges::count_if(world().opened, [&](const Open* each) { return nic == each->context.device->name; }));
}
void plug_all() {
  const std::lock_guard lock(world().mutex);
  for (Nic& each : world().nics) each.plugged = true;
}

void readdress(const std::string& nic, std::optional<std::uint8_t> network) {
  {
    const std::lock_guard lock(world().mutex);
    for (Nic& each : world().nics)
      if (nic == each.device.name) each.network = network;
  }
  befall(nic, abi::kEventGidChange);
}

std::uint64_t asked_for_events(const std::string& nic) {
  const std::lock_guard lock(world().mutex);
  std::uint64_t times = 0;
  for (const Nic& each : world().nics) times += nic == each.device.name ? each.asked_for_events : 0;
  return times;
}

std::shared_ptr<const Library> library() {
  auto made = std::make_shared<Library>();
  made->list = &list;
  made->free_list = [](abi::Device** all) { delete[] all; };
  made->open_device = &open_device;
  made->close_device = &close_device;
  made->query_device = &query_device;
  made->query_port = &query_port;
  made->query_gids = &query_gids;
  made->query_partition = &query_partition;
  made->query_paging = &query_paging;
  made->alloc_domain = [](abi::Context* context) { return new abi::ProtectionDomain{context, 0}; };
  made->free_domain = [](abi::ProtectionDomain* domain) {
    delete domain;
    return 0;
  };
  made->register_region = &register_region;
  made->register_dmabuf = settings().dmabuf_in_library ? &register_dmabuf : nullptr;
  made->deregister = &deregister;
  made->create_channel = &create_channel;
  made->destroy_channel = [](abi::CompletionChannel* channel) {
    ::close(channel->fd);
    delete &of<Channel>(channel);
    return 0;
  };
  made->create_queue = &create_queue;
  made->destroy_queue = [](abi::CompletionQueue* queue) {
    const std::lock_guard lock(world().mutex);
    std::uint64_t one = 0;
    if (queue->channel != nullptr)  // and the count of pending events
      for (auto left = std::erase(of<Channel>(queue->channel).events, queue); left > 0; --left)
        [[maybe_unused]] const auto taken = ::read(queue->channel->fd, &one, sizeof one);
    delete &of<Queue>(queue);
    return 0;
  };
  made->get_event = &get_event;
  made->acknowledge = [](abi::CompletionQueue*, unsigned) {};
  made->get_async_event = &get_async_event;
  made->acknowledge_async = [](abi::AsyncEvent*) {};
  made->create_pair = &create_pair;
  made->modify_pair = &modify_pair;
  made->destroy_pair = &destroy_pair;
  made->status_text = [](int status) -> const char* {
    return status == abi::kRemoteAccess ? "remote access error" : status == abi::kFlushed ? "flushed" : "failed";
  };
  return made;
}

}  // namespace fairway::support::nic

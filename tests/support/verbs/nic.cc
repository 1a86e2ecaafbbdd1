#include "support/verbs/nic.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "support/verbs/nic_world.h"

// The stand-in NICs: devices, their events, and the table of calls.
namespace fairway::support::nic {
namespace {

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
  add_calls(made->context);
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
int query_port(abi::Context* context, std::uint8_t, abi::PortState* state) {
  const std::lock_guard lock(world().mutex);
  *state = {};
  state->pkeys = static_cast<std::uint16_t>(world().nics[of<Open>(context).nic].partitions.size());
  state->state = abi::kPortActive;
  state->active_mtu = 5;
  state->gids = settings().ports;
  state->max_message = 1u << 30;
  state->link_layer = settings().infiniband ? 1 : 2;
  state->lid = settings().infiniband ? static_cast<std::uint16_t>(1 + of<Open>(context).nic) : std::uint16_t{0};
  state->path_flags = settings().header_required ? static_cast<std::uint8_t>(abi::kHeaderRequired) : std::uint8_t{0};
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
    into[i].type = settings().infiniband ? 0 : 2;
  }
  return settings().ports;
}
int query_partition(abi::Context* context, std::uint8_t, int index, std::uint16_t* key) {
  const std::lock_guard lock(world().mutex);
  const auto& table = world().nics[of<Open>(context).nic].partitions;
  if (index < 0 || static_cast<std::size_t>(index) >= table.size()) return EINVAL;
  const std::uint16_t at = table[static_cast<std::size_t>(index)];
  *key = static_cast<std::uint16_t>(at << 8 | at >> 8);  // big-endian
  return 0;
}
int query_paging(abi::Context*, abi::PagingLimits* paging) {
  *paging = settings().paging;
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

void kill(const std::string& nic) {
  const std::lock_guard lock(world().mutex);
  for (const auto& [number, pair] : world().pairs)
    if (nic == pair->pair.context->device->name) to_error(*pair);
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

void repartition(const std::string& nic, std::vector<std::uint16_t> keys) {
  {
    const std::lock_guard lock(world().mutex);
    for (Nic& each : world().nics)
      if (nic == each.device.name) each.partitions = keys;
  }
  befall(nic, abi::kEventPartitionChange);
}

std::uint64_t asked_for_events(const std::string& nic) {
  const std::lock_guard lock(world().mutex);
  std::uint64_t times = 0;
  for (const Nic& each : world().nics) times += nic == each.device.name ? each.asked_for_events : 0;
  return times;
}

std::shared_ptr<const transport::verbs::Library> library() {
  auto made = std::make_shared<transport::verbs::Library>();
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
  add_memory(*made);
  add_queues(*made);
  made->get_async_event = &get_async_event;
  made->acknowledge_async = [](abi::AsyncEvent*) {};
  made->status_text = [](int status) -> const char* {
    return status == abi::kRemoteAccess ? "remote access error" : status == abi::kFlushed ? "flushed" : "failed";
  };
  return made;
}

}  // namespace fairway::support::nic

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>

#include "engine/control_message.h"
#include "engine/state.h"
#include "engine/values.h"
#include "sys/error.h"
#include "sys/numa.h"
#include "sys/readable.h"
#include "transport/gpu_access.h"

namespace fairway {
namespace {

// Drivers pin memory page by page: from so many bytes on a thread for each worker is started in less time.
constexpr std::size_t kManyPages = std::size_t{16} << 20;

}  // namespace

Result<Region> Engine::register_memory(void* address, std::size_t size_bytes, Access access,
                                       const MemorySource& source) {
  State& state = *state_;
  if (state.closed()) return Status(ErrorCode::closed, "the engine is closed");
  if (Status status = engine::check_values(access, source.kind); !status) return status;
  if (address == nullptr || size_bytes == 0)
    return Status(ErrorCode::invalid_argument, "a region needs an address and at least one byte");
  engine::MemoryAt at{state.place_of(address, source.kind), -1};
  const MemoryKind kind = at.place.kind;
  if (kind == MemoryKind::host) at.numa_node = sys::numa_node_of(address, size_bytes);
  if (reached_by_cpu(kind) && !sys::readable(address, size_bytes))
    return Status(
        ErrorCode::invalid_argument,
        fmt::format("no CPU can read {} bytes at {}: memory of a GPU's needs the transport cuda, or staged, in "
                    "EngineOptions::transports",
                    size_bytes, address));
  if (includes(access, Access::atomic) && reinterpret_cast<std::uintptr_t>(address) % sizeof(std::uint64_t) != 0)
    return Status(ErrorCode::invalid_argument, "a region with Access::atomic starts at a multiple of 8 bytes");
  const auto id = state.regions.add(static_cast<std::byte*>(address), size_bytes, kind, access);
  if (!id) return id.status();
  State::LocalRegion local;
  local.region = {*id, static_cast<std::byte*>(address), size_bytes, kind, access};
  local.file = sys::Fd(source.fd < 0 ? -1 : ::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));
  const auto give_up = [&](const Status& why) {
    (void)state.regions.revoke(*id);
    state.regions.remove(*id);
    return why;
  };
  if (source.fd >= 0 && !local.file) return give_up(sys::system_status(errno, "cannot keep the memory's descriptor"));
  const engine::RegionFile file{local.file.get(), source.fd_offset};
  transport::MemoryDescription memory;
  memory.id = *id;
  memory.address = local.region.address;
  memory.size_bytes = size_bytes;
  memory.kind = kind;
  memory.access = access;
  memory.memory_fd = file.fd;
  memory.memory_offset = file.offset;
  std::vector<engine::Registration> made(state.workers.size());
  const auto register_with = [&](std::size_t i) { made[i] = state.workers[i]->locals().register_with_all(memory); };
  if (size_bytes >= kManyPages)
    state.runtime.executor.run_all(made.size(), register_with);
  else
    for (std::size_t i = 0; i < made.size(); ++i) register_with(i);
  Status status;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (status) status = made[i].status;
    local.keys.insert(local.keys.end(), made[i].keys.begin(), made[i].keys.end());
    state.workers[i]->call([&](engine::Worker& owner) { owner.locals().add(*id, std::move(made[i]), file, at); });
  }
  const Region region = local.region;
  {
    std::lock_guard lock(state.mutex);
    state.local_regions[id->slot] = std::move(local);
  }
  if (status) return region;
  (void)deregister(region);  // with those that had taken it
  return status;
}

// What the transports know of the address, else what the caller says.
transport::MemoryPlace Engine::State::place_of(const void* address, MemoryKind said) const {
  for (const auto& transport : workers.front()->transports())
    if (const transport::GpuAccess* gpus = transport->gpu(); gpus != nullptr)
      if (auto place = gpus->place_of(address)) return std::move(*place);
  return {said, {}};
}

Result<Region> Engine::allocate(std::size_t size_bytes, Access access) {
  auto memory = sys::MemoryFile::make(size_bytes);
  if (!memory) return memory.status();
  auto region = register_memory(memory->address(), size_bytes, access, {MemoryKind::host, memory->fd(), 0});
  if (!region) return region;
  memory->close_fd();  // the region keeps its own
  std::lock_guard lock(state_->mutex);
  state_->local_regions[region->id.slot].memory = std::move(*memory);
  return region;
}

Status Engine::deregister(const Region& region, Timeout timeout) {
  State& state = *state_;
  if (state.closed()) return {ErrorCode::closed, "the engine is closed: nothing touches its regions any more"};
  if (const Status status = state.regions.revoke(region.id); !status) return status;
  {
    std::lock_guard lock(state.mutex);
    std::erase_if(state.published, [&](const auto& entry) { return entry.second == region.id; });
  }
  // Shared with the workers: they finish also after this call's timeout.
  struct Ending {
    std::atomic<std::uint32_t> left;
    std::mutex mutex;  // guards status
    Status status;
  };
  auto ending = std::make_shared<Ending>();
  ending->left = static_cast<std::uint32_t>(state.workers.size());
  for (const auto& worker : state.workers)
    worker->post([&state, ending, id = region.id](engine::Worker& owner) {
      owner.stop_users_of(id);
      owner.remove_region(id, nullptr, [&state, ending, id](const Status& status) {
        if (!status) {
          std::lock_guard lock(ending->mutex);
          ending->status = status;
        }
        if (ending->left.fetch_sub(1) != 1) return;
        if (ending->status.is_ok()) {
          sys::MemoryFile freed;  // unmapped here, once nobody touches it
          std::lock_guard lock(state.mutex);
          const auto found = state.local_regions.find(id.slot);
          if (found != state.local_regions.end() && found->second.region.id == id) {
            freed = std::move(found->second.memory);
            state.local_regions.erase(found);
          }
        }
        state.regions.remove(id);
        state.notice();
      });
    });
  if (!state.wait_until(state.deadline(timeout), [&] { return ending->left.load() == 0; })) {
    std::string holders;
    for (const auto& worker : state.workers)
      worker->call([&](engine::Worker& owner) { holders += owner.holders_of(region.id); });
    return Status(ErrorCode::not_fenced, "the region may still be touched: do not reuse its memory; held by " +
                                             (holders.empty() ? "this engine's own transfers" : holders));
  }
  std::lock_guard lock(ending->mutex);
  return ending->status;
}

Result<std::vector<std::byte>> Engine::State::describe(RegionId id) {
  const auto region = regions.find(id);
  if (!region) return region.status();
  engine::Description description;
  description.incarnation = control->incarnation();
  description.region = id;
  description.size_bytes = region->size_bytes;
  description.kind = region->kind;
  description.access = region->access;
  {
    std::lock_guard lock(mutex);
    const auto found = local_regions.find(id.slot);
    if (found != local_regions.end() && found->second.region.id == id) description.keys = found->second.keys;
  }
  return format_description(description);
}

Result<std::vector<std::byte>> Engine::describe(const Region& region) {
  return state_->describe(region.id);
}

Result<RemoteRegion> Engine::import_region(PeerId peer, std::span<const std::byte> description) {
  State& state = *state_;
  const auto info = state.peers.find(peer);
  if (!info || !state.peers.is_usable(peer)) return state.peers.why_not(peer);
  auto parsed = engine::parse_description(description);
  if (!parsed) return parsed.status();
  if (parsed->incarnation != info->peer.incarnation)
    return Status(ErrorCode::stale_incarnation,
                  "the region is of another engine, or of an earlier life of this peer: get a new description")
        .with_peer(info->peer.name);
  RemoteRegion region;
  Status error;
  const Status reached = state.with_peer(peer, [&](engine::Worker& worker, engine::Peer& owner) {
    region.id = worker.remotes().import(owner.owner(), *parsed, error);
  });
  if (!reached) return reached;
  if (!error) return error;
  region.peer = peer;
  region.size_bytes = parsed->size_bytes;
  region.kind = parsed->kind;
  region.access = parsed->access;
  return region;
}

Status Engine::release(const RemoteRegion& region) {
  return state_->with_peer(region.peer, [&](engine::Worker& worker, engine::Peer& owner) {
    owner.release_import(region.id);
    (void)worker;
  });
}

Status Engine::publish(std::string_view name, const Region& region) {
  State& state = *state_;
  if (name.empty() || name.size() > 1024) return {ErrorCode::invalid_argument, "a region's name has 1 to 1024 bytes"};
  if (const auto found = state.regions.find(region.id); !found) return found.status();
  std::vector<State::Asked> waiting;
  {
    std::lock_guard lock(state.mutex);
    const auto [entry, added] = state.published.emplace(std::string(name), region.id);
    if (!added && entry->second != region.id)
      return {ErrorCode::already_exists, "another region is published as \"" + std::string(name) + "\""};
    std::erase_if(state.asked, [&](const State::Asked& ask) {
      if (ask.name != name) return false;
      waiting.push_back(ask);
      return true;
    });
  }
  for (const State::Asked& ask : waiting) state.answer_lookup(ask.session, ask.token, ask.name);
  return {};
}

Result<RemoteRegion> Engine::lookup(PeerId peer, std::string_view name, Timeout timeout) {
  State& state = *state_;
  const auto info = state.peers.find(peer);
  if (!info || !state.peers.is_usable(peer)) return state.peers.why_not(peer);
  if (name.empty() || name.size() > 1024)
    return Status(ErrorCode::invalid_argument, "a region's name has 1 to 1024 bytes");
  const std::uint64_t token = state.next_token.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard lock(state.mutex);
    state.pending[token].session = info->session;
  }
  const Status sent = state.control->send(info->session, format(engine::Lookup{token, std::string(name)}));
  bool answered = false;
  if (sent)
    answered = state.wait_until(state.deadline(timeout), [&] {
      std::lock_guard lock(state.mutex);
      return state.pending[token].done;
    });
  State::Pending answer;
  {
    std::lock_guard lock(state.mutex);
    answer = state.pending[token];
    state.pending.erase(token);
  }
  if (!sent) return sent;
  if (!answered)
    return Status(ErrorCode::timed_out, "the peer has not published \"" + std::string(name) + "\"")
        .with_peer(info->peer.name);
  if (!answer.status) return answer.status;
  return import_region(peer, answer.description);
}

}  // namespace fairway

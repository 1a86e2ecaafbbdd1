#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "transport/verbs/transport.h"

// Events and failures of ports. The kernel reports most by asynchronous events. Removing a device waits until its users
// release it; hardware drivers send an event, software drivers do not, so for those the list of devices is checked. The
// list also shows when a lost device returns.
namespace fairway::transport::verbs {
namespace {

// How often to read events of ports without completions while the worker polls, since it is a system call. A sleeping
// worker is woken.
constexpr Time kEventsPoll = 25 * kMillisecond;
constexpr Time kListEvery = kSecond, kListMissingEvery = kSecond / 4;  // device list; while one is missing
constexpr Time kHeldCheck = 10 * kMillisecond;                         // for a port that another thread holds

// Nothing if the library could not list devices, which does not mean that they are gone.
std::optional<std::vector<std::string>> names_of_devices(const Library& library) {
  int count = 0;
  abi::Device** const list = library.list(&count);
  if (list == nullptr) return std::nullopt;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(list[i]->name);
  library.free_list(list);
  return names;
}

}  // namespace

void VerbsTransport::check_ports(Time now) {
  const bool woken = std::exchange(armed_, false);
  if (!woken && now < ports_at_) return;
  ports_at_ = after(now, kEventsPoll);
  for (const auto& port : ports_) {
    if (port->gone() || (!port->was_quiet() && !woken)) continue;
    if (woken) port->drain_channel();
    inbox_.system_calls.fetch_add(woken ? 2 : 1, std::memory_order_relaxed);
    if (const std::string happened = port->poll_async_events(); !happened.empty()) end_links(*port, happened);
    losing_ |= !port->lost().empty();
  }
}

void VerbsTransport::end_links(const Port& port, const std::string& why) {
  for (const std::uint32_t slot : links_.up())
    if (links_.at(slot).device == port.index())
      ends_[slot].lane->fail({ErrorCode::link_failed, "verbs: " + port.device().name + ": " + why});
}

void VerbsTransport::check_devices(Time now) {
  if (now < devices_at_ || task_ == nullptr) return;
  const auto there = [](const auto& port) { return port->software() && port->lost().empty(); };
  const auto missed = [](const auto& port) { return port->gone() && !port->iwarp(); };
  const bool any_missed = std::any_of(ports_.begin(), ports_.end(), missed);
  const bool any = any_missed || std::any_of(ports_.begin(), ports_.end(), there);
  devices_at_ = any ? after(now, any_missed ? kListMissingEvery : kListEvery) : kNever;
  std::optional<std::vector<std::string>> listed;
  {
    const std::lock_guard lock(listing_mutex_);
    listed = std::exchange(listed_, std::nullopt);
    if (!any || std::exchange(listing_, true)) return;
  }
  for (const auto& port : ports_) {
    if (!listed || !there(port)) continue;
    const std::string& name = port->device().name;
    if (std::find(listed->begin(), listed->end(), name.substr(0, name.rfind('/'))) != listed->end()) continue;
    port->lose("the device was removed");
    end_links(*port, port->lost());
    losing_ = true;
  }
  if (listed) start_recoveries(*listed);
  const Library& library = ports_.front()->library();
  const Status asked = janitor_.post([this, &library] {
    auto names = names_of_devices(library);
    const std::lock_guard lock(listing_mutex_);
    listed_ = std::move(names);
    listing_ = false;
  });
  if (asked) return;
  const std::lock_guard lock(listing_mutex_);
  listing_ = false;  // no thread: tries again later
}

// Releases lost ports that have no link any more. Ports stay if rdma_cm is in use, since its ids may outlive their
// links.
void VerbsTransport::release_lost_ports(Time now) {
  if (cm_) return;
  slow_deregistrations_.try_again();  // what a lost device's driver had refused
  if (slow_deregistrations_.any()) return;
  losing_ = false;
  for (const auto& port : ports_) {
    if (port->lost().empty() || port->gone()) continue;
    const bool used = std::any_of(ends_.begin(), ends_.end(), [&](const End& end) {
      return end.lane != nullptr && &end.lane->port() == port.get();
    });
    if (used || !port->let_go()) {
      losing_ = true;
      if (!used) devices_at_ = std::min(devices_at_, after(now, kHeldCheck));
      continue;
    }
    unwatch(*port);
    // A shared pointer, because std::function must be copyable.
    auto regions = std::make_shared<std::vector<OwnRegion>>(registrations_.give_up(*port));
    janitor_.end([&port = *port, regions = std::move(regions)] {
      regions->clear();
      port.close();
    });
    devices_at_ = std::min(devices_at_, after(now, kListMissingEvery));
  }
}

// Recovers ports whose device was removed and has returned, and registers regions that were added meanwhile. The
// janitor opens the device and registers, since that is slow; then the worker takes over and first sends peers the new
// keys.

bool VerbsTransport::PortRecovery::has(std::uint64_t handle) const {
  return std::any_of(regions.begin(), regions.end(), [&](const Placing& each) { return each.handle == handle; });
}

void VerbsTransport::start_recoveries(const std::vector<std::string>& listed) {
  for (const auto& port : ports_) {
    const std::string& name = port->device().name;
    if (!recovery_ && port->gone() &&
        std::find(listed.begin(), listed.end(), name.substr(0, name.rfind('/'))) != listed.end())
      begin_recovery(*port);
  }
}

// For regions that were added while a port was missing which has recovered since.
void VerbsTransport::register_missed_regions() {
  const std::uint64_t added = registrations_.added_without();
  if (added == missed_seen_ || recovery_) return;
  missed_seen_ = added;
  for (const auto& port : ports_) {
    if (port->gone() || registrations_.missing_at(port->index()).empty()) continue;
    begin_recovery(*port);
    missed_seen_ = added - 1;  // checks again: another port may miss it too
    return;
  }
}

void VerbsTransport::begin_recovery(Port& port) {
  recovery_ = std::make_unique<PortRecovery>();
  PortRecovery& made = *recovery_;
  made.port = &port;
  made.held = port.hold();
  made.regions = registrations_.missing_at(port.index());
  const Status begun = janitor_.post([this, &made] {
    if (!made.held) {
      auto opened = open_again(*made.port, options_);
      made.status = opened ? made.port->can_become(**opened) : opened.status();
      if (made.status) made.opened = std::move(*opened);
    }
    const Port& at = made.opened ? *made.opened : *made.port;
    for (Placing& each : made.regions) {
      if (!made.status) break;
      place(at, each);
      if (each.had) made.status = each.status;
    }
    made.done.store(true, std::memory_order_release);
    task_->wake();
  });
  if (!begun) recovery_.reset();  // no thread: tries again later
}

void VerbsTransport::end_recovery() {
  const std::shared_ptr<PortRecovery> made(std::move(recovery_));
  Port& port = *made->port;
  if (made->opened) {
    if (made->status) made->status = watch(*made->opened);
    if (made->status) port.become(*made->opened);
  }
  if (made->status) {
    std::vector<RenewedKey> keys;
    for (Placing& each : made->regions)
      if (const auto key = registrations_.settle(port.index(), each)) keys.push_back({each.handle, *key});
    for (const PeerIndex peer : links_.peers()) send_renewed_keys(peer, port.index(), keys);
  } else {
    abandon(*made);
    port.lose("the device was removed or failed, and its replacement cannot be used: " + made->status.message());
  }
  made->held.reset();
  janitor_.end([made] { made->give_back(); });
}

// Words that were registered with the device that was opened end with it: nobody may use them or end them later.
void VerbsTransport::abandon(PortRecovery& recovery) {
  if (recovery.opened) recovery.words = registrations_.give_up_words(recovery.port->index());
}

void VerbsTransport::PortRecovery::give_back() {
  regions.clear();
  words.clear();
  opened.reset();
}

void VerbsTransport::send_renewed_keys(PeerIndex peer, std::size_t port, std::span<const RenewedKey> keys) {
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kRenewedInNote)))
    links_.note(peer, encode_renewed(port, keys.first(std::min(keys.size(), kRenewedInNote))));
}

void VerbsTransport::on_planned(PeerIndex peer) {
  for (const auto& port : ports_) send_renewed_keys(peer, port->index(), registrations_.renewed_at(port->index()));
}

bool VerbsTransport::on_note(PeerIndex peer, std::span<const std::byte> bytes) {
  std::size_t port = 0;
  const auto keys = decode_renewed(bytes, port);
  if (!keys || !renewed_keys_.keep(peer, port, *keys)) return false;
  bool fits = true;
  imports_.each(peer, [&](auto& import) { fits &= renew(import.extra, renewed_keys_.of(peer, import.region)); });
  return fits;
}

// False: the keys cannot belong to that region.
bool VerbsTransport::renew(Remote& remote, std::span<const RenewedKeys::AtPort> keys) {
  for (const auto& [port, key] : keys) {
    std::uint64_t end = 0;
    if (port >= remote.keys.size() || __builtin_add_overflow(key.address, remote.size_bytes, &end)) return false;
    remote.keys[port] = key;
  }
  return true;
}

}  // namespace fairway::transport::verbs

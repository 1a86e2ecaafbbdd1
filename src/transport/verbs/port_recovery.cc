#include <algorithm>
#include <iterator>
#include <utility>

#include "transport/verbs/transport.h"

// Recovers ports whose device was removed and has returned, and registers regions that were added meanwhile. The
// janitor opens the device and registers, since that is slow; then the worker takes over and first sends peers the new
// keys.
namespace fairway::transport::verbs {

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

#include <algorithm>
#include <optional>
#include <utility>

#include "transport/verbs/transport.h"

// What befalls ports: the kernel tells of most of it by an event. A device that is removed waits for its users to let
// it go; drivers of hardware say so, those of software do not, so it is looked whether theirs are still listed. And
// whether one is listed again that was lost.
namespace fairway::transport::verbs {
namespace {

// While nobody sleeps, at ports that gave nothing back for so long: a system call. A port that has news wakes who
// sleeps.
constexpr Time kQuietLook = 25 * kMillisecond;
constexpr Time kDevicesLook = kSecond, kMissedLook = kSecond / 4;  // whether they are there; again
constexpr Time kHeldLook = 10 * kMillisecond;                      // at a port that somebody registers memory with

// Nothing where the library could not look: that says of no device that it is gone.
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

void VerbsTransport::look_at_ports(Time now) {
  const bool woken = std::exchange(armed_, false);
  if (!woken && now < ports_at_) return;
  ports_at_ = after(now, kQuietLook);
  for (const auto& port : ports_) {
    if (port->gone() || (!port->was_quiet() && !woken)) continue;
    if (woken) port->drain_channel();
    inbox_.system_calls.fetch_add(woken ? 2 : 1, std::memory_order_relaxed);
    if (const std::string happened = port->what_happened(); !happened.empty()) end_links(*port, happened);
    losing_ |= !port->lost().empty();
  }
}

void VerbsTransport::end_links(const Port& port, const std::string& why) {
  for (const std::uint32_t slot : links_.up())
    if (links_.at(slot).device == port.index())
      ends_[slot].lane->fail({ErrorCode::link_failed, "verbs: " + port.device().name + ": " + why});
}

void VerbsTransport::look_at_devices(Time now) {
  if (now < devices_at_ || task_ == nullptr) return;
  const auto there = [](const auto& port) { return port->software() && port->lost().empty(); };
  const auto missed = [](const auto& port) { return port->gone() && !port->iwarp(); };
  const bool any_missed = std::any_of(ports_.begin(), ports_.end(), missed);
  const bool any = any_missed || std::any_of(ports_.begin(), ports_.end(), there);
  devices_at_ = any ? after(now, any_missed ? kMissedLook : kDevicesLook) : kNever;
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
  if (listed) look_for_recoveries(*listed);
  const Library& library = ports_.front()->library();
  const Status asked = janitor_.post([this, &library] {
    auto names = names_of_devices(library);
    const std::lock_guard lock(listing_mutex_);
    listed_ = std::move(names);
    listing_ = false;
  });
  if (asked) return;
  const std::lock_guard lock(listing_mutex_);
  listing_ = false;  // without a thread it is looked for later
}

// Once no link is there any more. What rdma_cm connected may outlive its link, so its ports stay.
void VerbsTransport::let_ports_go(Time now) {
  if (cm_ || slow_ends_.any()) return;
  losing_ = false;
  for (const auto& port : ports_) {
    if (port->lost().empty() || port->gone()) continue;
    const bool used = std::any_of(ends_.begin(), ends_.end(), [&](const End& end) {
      return end.lane != nullptr && &end.lane->port() == port.get();
    });
    if (used || !port->let_go()) {
      losing_ = true;
      if (!used) devices_at_ = std::min(devices_at_, after(now, kHeldLook));
      continue;
    }
    unwatch(*port);
    // Owned by a shared pointer, as a function is copied.
    auto regions = std::make_shared<std::vector<OwnRegion>>(registrations_.give_up(*port));
    janitor_.end([&port = *port, regions = std::move(regions)] {
      regions->clear();
      port.close();
    });
    devices_at_ = std::min(devices_at_, after(now, kMissedLook));
  }
}

}  // namespace fairway::transport::verbs

#include "conformance/side.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fairway::conformance {

Side::Side(Runtime& runtime, const Make& make) : runtime_(runtime) {
  transport_ = make(regions_, runtime_);
}

Side::~Side() {
  if (task_) close();
  wakes_ = nullptr;
  task_.reset();
  transport_.reset();
}

void Side::start() {
  TaskOptions options;
  options.name = "side";
  auto task = runtime_.executor.start(options, *this);
  if (task) task_ = std::move(*task);
  wakes_ = task_.get();
  command([this](Transport& transport) { attached_ = transport.attach(*task_); });
}

void Side::carry_to(Side& other, std::function<void(std::vector<std::byte>&)> edit) {
  other_ = &other;
  edit_ = std::move(edit);
}

void Side::carry_no_more() {
  command([this](Transport&) { other_ = nullptr; });
}

Time Side::step(Time now) {
  steps_.fetch_add(1, std::memory_order_relaxed);
  bool worked = false;
  for (;;) {
    std::function<void(Transport&)> what;
    {
      std::lock_guard lock(mutex_);
      if (commands_.empty()) break;
      what = std::move(commands_.front());
      commands_.pop_front();
    }
    what(*transport_);
    worked = true;
  }
  if (!paused_) {
    std::array<Event, 5> events;  // few, so that a poll often cannot tell all
    const std::size_t count = transport_->poll(events, now);
    for (const Event& event : std::span(events).first(count)) record(event);
    worked = worked || count != 0;
  }
  if (worked) {
    news_.fetch_add(1);
    runtime_.executor.wake_all(news_);
    return now;
  }
  return paused_ ? kNever : transport_->next_timer();
}

bool Side::prepare_sleep() {
  {
    std::lock_guard lock(mutex_);
    if (!commands_.empty()) return false;
  }
  const bool may = paused_ || transport_->prepare_sleep();
  if (may) slept_after_.store(steps_.load());
  return may;
}

void Side::record(const Event& event) {
  if (event.kind == EventKind::exchange) {
    std::vector<std::byte> bytes(event.bytes.begin(), event.bytes.end());
    if (edit_) edit_(bytes);
    if (other_ && !bytes.empty())
      other_->enqueue([bytes = std::move(bytes)](Transport& transport) { transport.exchange(kPeer, bytes); });
    return;
  }
  std::lock_guard lock(mutex_);
  log_.push_back({event, {event.bytes.begin(), event.bytes.end()}});
}

void Side::enqueue(std::function<void(Transport&)> what) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(what));
  }
  if (Task* task = wakes_.load()) task->wake();
}

void Side::command(std::function<void(Transport&)> what) {
  auto ran = std::make_shared<std::atomic<std::uint32_t>>(0);
  enqueue([this, ran, what = std::move(what)](Transport& transport) {
    what(transport);
    ran->store(1);
    runtime_.executor.wake_all(*ran);
  });
  while (ran->load() == 0) runtime_.executor.wait(*ran, 0, after(runtime_.clock.now(), kSecond));
}

void Side::connect(Role role) {
  command([role](Transport& transport) { static_cast<void>(transport.connect(kPeer, role)); });
}
void Side::exchange(std::span<const std::byte> bytes) {
  command([bytes](Transport& transport) { transport.exchange(kPeer, bytes); });
}
void Side::disconnect() {
  command([](Transport& transport) { transport.disconnect(kPeer); });
}
void Side::close() {
  command([this](Transport& transport) {
    transport.close();
    paused_ = false;
  });
}
void Side::pause(bool on) {
  command([this, on](Transport&) { paused_ = on; });
}

Memory Side::remember(Buffer& buffer, Access access) {
  Memory memory{&buffer, {}, 0, access, {}, {}};
  const Result<RegionId> id = regions_.add(buffer.data(), buffer.size(), buffer.kind(), access);
  if (!id) return memory;
  memory.region = *id;
  memory.held = std::shared_ptr<void>(this, [id = *id](void* self) {
    auto& side = *static_cast<Side*>(self);
    static_cast<void>(side.regions_.revoke(id));
    side.command([](Transport&) {});
  });
  transport::MemoryDescription description;
  description.id = *id;
  description.address = buffer.data();
  description.size_bytes = buffer.size();
  description.kind = buffer.kind();
  description.access = access;
  description.memory_fd = buffer.file();
  description.memory_offset = buffer.file_offset();
  if (auto registered = transport_->register_memory(description)) {
    memory.handle = registered->handle;
    memory.keys = std::move(registered->keys);
  }
  return memory;
}

void Side::revoke(const Memory& memory) {
  static_cast<void>(regions_.revoke(memory.region));
}

void Side::deregister(const Memory& memory) {
  revoke(memory);
  command([&](Transport& transport) { transport.deregister(memory.handle); });
}

std::uint64_t Side::import(const Memory& memory) {
  std::uint64_t handle = 0;
  command([&](Transport& transport) {
    const auto imported =
        transport.import(kPeer, {memory.region, memory.buffer->size(), memory.access}, std::span(memory.keys));
    if (imported) handle = *imported;
  });
  return handle;
}

void Side::release(std::uint64_t handle) {
  command([handle](Transport& transport) { transport.release(handle); });
}

std::size_t Side::post(std::span<const Slice> slices) {
  std::size_t taken = 0;
  command([&](Transport& transport) { taken = transport.post(slices); });
  return taken;
}

bool Side::post_all(std::span<const Slice> slices) {
  const Time end = after(runtime_.clock.now(), 20 * kSecond);
  while (!slices.empty()) {
    const std::uint32_t before = news_.load();
    const std::size_t taken = post(slices);
    slices = slices.subspan(taken);
    if (slices.empty()) return true;
    if (runtime_.clock.now() >= end) return false;
    // `before` is stale by our own command at least: this only lets others run.
    if (taken == 0) runtime_.executor.wait(news_, before + 1, after(runtime_.clock.now(), 100 * kMicrosecond));
  }
  return true;
}

void Side::fence(LinkId link) {
  command([link](Transport& transport) { transport.fence(link); });
}
void Side::reconnect(LinkId link) {
  command([link](Transport& transport) { transport.reconnect(link); });
}
void Side::cancel(transport::SliceToken token) {
  command([token](Transport& transport) { transport.cancel(token); });
}

std::vector<Seen> Side::seen() {
  std::lock_guard lock(mutex_);
  return log_;
}

bool Side::wait(const std::function<bool(const std::vector<Seen>&)>& done, Time most) {
  const Time end = after(runtime_.clock.now(), most);
  for (;;) {
    const std::uint32_t before = news_.load();
    {
      std::lock_guard lock(mutex_);
      if (done(log_)) return true;
    }
    if (runtime_.clock.now() >= end) return false;
    runtime_.executor.wait(news_, before, std::min(end, after(runtime_.clock.now(), kSecond)));
  }
}

void Side::rest(Time time) {
  const Time end = after(runtime_.clock.now(), time);
  while (runtime_.clock.now() < end) {
    const std::uint32_t now = news_.load();
    runtime_.executor.wait(news_, now, end);
  }
}

bool Side::wait_asleep() {
  const Time end = after(runtime_.clock.now(), 20 * kSecond);
  while (slept_after_.load() != steps_.load() || steps_.load() == 0) {
    if (runtime_.clock.now() >= end) return false;
    rest(kMillisecond / 4);
  }
  return true;
}

std::size_t Side::count(EventKind kind) {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(log_.begin(), log_.end(), [kind](const Seen& seen) { return seen.event.kind == kind; }));
}

bool Side::wait_ended(std::size_t slices) {
  return wait([slices](const std::vector<Seen>& log) {
    return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), [](const Seen& seen) {
             return seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed;
           })) >= slices;
  });
}

Seen Side::wait_token(transport::SliceToken token) {
  Seen found;
  found.event.kind = EventKind::exchange;
  static_cast<void>(wait([&](const std::vector<Seen>& log) {
    for (const Seen& seen : log)
      if ((seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed) && seen.event.token == token) {
        found = seen;
        return true;
      }
    return false;
  }));
  return found;
}

std::vector<UpLink> Side::wait_links(std::size_t count) {
  std::vector<UpLink> links;
  static_cast<void>(wait([&](const std::vector<Seen>& log) {
    links.clear();
    for (const Seen& seen : log) {
      if (seen.event.kind == EventKind::link_up)
        links.push_back({seen.event.link, seen.event.device, seen.event.value});
      if (seen.event.kind == EventKind::link_down || seen.event.kind == EventKind::fenced)
        std::erase_if(links, [&](const UpLink& link) { return link.id == seen.event.link; });
    }
    return links.size() >= count;
  }));
  std::sort(links.begin(), links.end(), [](const UpLink& a, const UpLink& b) { return a.name < b.name; });
  return links;
}

}  // namespace fairway::conformance

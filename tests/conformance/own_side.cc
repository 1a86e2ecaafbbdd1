#include "conformance/own_side.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

namespace fairway::conformance {

OwnSide::OwnSide(Runtime& runtime, const Make& make) : Side(runtime) {
  auto made = make(regions_, runtime_);
  if (!made) throw std::runtime_error(made.status().to_string());
  transport_ = std::move(*made);
}

void OwnSide::start() {
  TaskOptions options;
  options.name = "side";
  auto task = runtime_.executor.start(options, *this);
  if (task) task_ = std::move(*task);
  wakes_ = task_.get();
  command([this](Transport& transport) {
    const Status attached = transport.attach(*task_);
    EXPECT_TRUE(attached) << attached.to_string();
  });
}

void OwnSide::stop() {
  if (task_) close();
  wakes_ = nullptr;
  task_.reset();
  transport_.reset();
}

Time OwnSide::step(Time now) {
  steps_.fetch_add(1, std::memory_order_relaxed);
  bool worked = false;
  for (;;) {
    Command what;
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
    for (const Lent& lent : lent_) EXPECT_TRUE(std::ranges::equal(lent.bytes, lent.copy)) << "lent until the next poll";
    lent_.clear();
    const std::size_t count = transport_->poll(events, now);
    for (const Event& event : std::span(events).first(count)) record(event);
    worked = worked || count != 0;
  }
  if (worked) {
    news();
    return now;
  }
  return paused_ ? kNever : transport_->next_timer();
}

bool OwnSide::prepare_sleep() {
  {
    std::lock_guard lock(mutex_);
    if (!commands_.empty()) return false;
  }
  const bool may = paused_ || transport_->prepare_sleep();
  if (may) slept_after_.store(steps_.load());
  return may;
}

void OwnSide::record(const Event& event) {
  std::vector<std::byte> bytes(event.bytes.begin(), event.bytes.end());
  if (event.kind == EventKind::exchange)
    carry(bytes);
  else
    tell({event, bytes});
  if (!event.bytes.empty()) lent_.push_back({event.bytes, std::move(bytes)});
}

void OwnSide::enqueue(Command what) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back(std::move(what));
  }
  if (Task* task = wakes_.load()) task->wake();
}

void OwnSide::command(Command what) {
  auto ran = std::make_shared<std::atomic<std::uint32_t>>(0);
  enqueue([this, ran, what = std::move(what)](Transport& transport) {
    what(transport);
    ran->store(1);
    runtime_.executor.wake_all(*ran);
  });
  while (ran->load() == 0) runtime_.executor.wait(*ran, 0, after(runtime_.clock.now(), kSecond));
}

void OwnSide::connect(Role role) {
  command([role](Transport& transport) { static_cast<void>(transport.connect(kPeer, role)); });
}
void OwnSide::exchange(std::span<const std::byte> bytes) {
  command([bytes](Transport& transport) { transport.exchange(kPeer, bytes); });
}
void OwnSide::hear(std::vector<std::byte> bytes) {
  enqueue([bytes = std::move(bytes)](Transport& transport) { transport.exchange(kPeer, bytes); });
}
void OwnSide::disconnect() {
  command([](Transport& transport) { transport.disconnect(kPeer); });
}
void OwnSide::close() {
  command([this](Transport& transport) {
    transport.close();
    paused_ = false;
  });
}
void OwnSide::pause(bool on) {
  command([this, on](Transport&) { paused_ = on; });
}

Side::Kept OwnSide::keep(const Region& memory, const MemorySource& source) {
  const Result<RegionId> id = regions_.add(memory.address, memory.size_bytes, memory.kind, memory.access);
  if (!id) return {};
  Kept kept;
  kept.region = *id;
  kept.held = std::shared_ptr<void>(this, [id = *id](void* self) {
    auto& side = *static_cast<OwnSide*>(self);
    side.revoke_region(id);
    side.command([](Transport&) {});
  });
  Region region = memory;
  region.id = *id;
  if (auto registered = transport_->register_memory(region, source)) kept.registered = std::move(*registered);
  return kept;
}

void OwnSide::revoke_region(RegionId region) {
  static_cast<void>(regions_.revoke(region));
}

void OwnSide::deregister_region(RegionId region, std::uint64_t handle) {
  revoke_region(region);
  command([handle](Transport& transport) { transport.deregister(handle); });
}

std::uint64_t OwnSide::import_keys(const transport::RemoteMemory& memory,
                                   std::span<const std::vector<std::byte>> keys) {
  std::uint64_t handle = 0;
  command([&](Transport& transport) {
    if (const auto imported = transport.import(kPeer, memory, keys)) handle = *imported;
  });
  return handle;
}

void OwnSide::release(std::uint64_t handle) {
  command([handle](Transport& transport) { transport.release(handle); });
}

std::size_t OwnSide::post(std::span<const Slice> slices) {
  std::size_t taken = 0;
  command([&](Transport& transport) { taken = transport.post(slices); });
  return taken;
}

std::optional<transport::AtOnce> OwnSide::move_now(const transport::SmallMove& move) {
  std::optional<transport::AtOnce> answer;
  command([&](Transport& transport) {
    if (auto* mover = dynamic_cast<transport::MovesAtOnce*>(&transport)) answer = mover->move_now(move);
  });
  return answer;
}

std::optional<transport::AtOnce> OwnSide::send_now(LinkId link, std::span<const std::byte> head,
                                                   std::span<const std::byte> tail) {
  std::optional<transport::AtOnce> answer;
  command([&](Transport& transport) {
    if (auto* mover = dynamic_cast<transport::MovesAtOnce*>(&transport)) answer = mover->send_now(link, head, tail);
  });
  return answer;
}

void OwnSide::fence(LinkId link) {
  command([link](Transport& transport) { transport.fence(link); });
}
void OwnSide::reconnect(LinkId link) {
  command([link](Transport& transport) { transport.reconnect(link); });
}
void OwnSide::cancel(transport::SliceToken token) {
  command([token](Transport& transport) { transport.cancel(token); });
}

}  // namespace fairway::conformance

#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/runtime.h"
#include "transport/transport.h"

namespace fairway::hostile {

// What a test sees and does behind the victim's back; shared by the test and the transport, one thread.
struct Script {
  struct Injected {
    transport::Event event;
    std::vector<std::byte> bytes;
  };
  std::deque<Injected> events;
  std::vector<transport::Slice> held;            // posted and not ended, when `hold` is set
  std::vector<std::vector<std::byte>> messages;  // that the victim sent
  bool hold = false;                             // slices stay in flight
  bool with_writes = true;                       // else the device knows messages alone
  transport::LinkId link;                        // the one link; epoch 0 before it is up
  transport::PeerIndex peer = 0;
  std::function<void()> wake;

  void inject(transport::EventKind kind, std::span<const std::byte> bytes = {}, std::uint64_t value = 0) {
    Injected one;
    one.event.kind = kind;
    one.event.link = link;
    one.event.peer = peer;
    one.event.value = value;
    one.bytes.assign(bytes.begin(), bytes.end());
    events.push_back(std::move(one));
    if (wake) wake();
  }
  void end(const transport::Slice& slice, const Status& status = {}) {
    Injected one;
    one.event.kind = status.is_ok() ? transport::EventKind::done : transport::EventKind::failed;
    one.event.token = slice.token;
    one.event.status = status;
    events.push_back(std::move(one));
    if (wake) wake();
  }
};

// A device whose far end is the script: what a hostile peer's NIC could deliver, this delivers. Owned by a worker.
class ScriptedTransport final : public transport::Transport {
 public:
  explicit ScriptedTransport(std::shared_ptr<Script> script) : Transport("loopback"), script_(std::move(script)) {
    transport::Device& device = devices_.emplace_back();
    device.name = "script";
    device.bytes_per_second = 1'000'000'000;
    auto& can = device.capabilities;
    can.operations = script_->with_writes ? 1 | 2 | 4 | 32 : 4;
    can.max_message_bytes = 1024;
    can.queue_depth = 64;
    can.ordered = true;
    can.visible_when_done = true;
  }
  Status attach(Task& task) override {
    script_->wake = [&task] { task.wake(); };
    return {};
  }
  Status connect(transport::PeerIndex peer, transport::Role) override {
    script_->peer = peer;
    script_->link = {0, 1};
    script_->inject(transport::EventKind::link_up, {}, 1);
    return {};
  }
  void exchange(transport::PeerIndex, std::span<const std::byte>) override {}
  void disconnect(transport::PeerIndex) override { end_all(); }
  Result<transport::RegisteredMemory> register_memory(const Region& memory, const MemorySource&) override {
    return transport::RegisteredMemory{std::uint64_t{memory.id.generation} << 32 | memory.id.slot, {}};
  }
  void deregister(std::uint64_t handle) override { script_->inject(transport::EventKind::deregistered, {}, handle); }
  Result<std::uint64_t> import(transport::PeerIndex, const transport::RemoteMemory&,
                               std::span<const std::vector<std::byte>>) override {
    return std::uint64_t{1};
  }
  void release(std::uint64_t) override {}
  transport::Reach reach(transport::LinkId, std::uint64_t, std::uint64_t, std::string*) override {
    return transport::Reach::yes;
  }
  std::size_t post(std::span<const transport::Slice> slices) override {
    if (closed_) return 0;
    for (const transport::Slice& slice : slices) {
      if (slice.op == transport::Op::message) script_->messages.emplace_back(slice.local, slice.local + slice.length);
      if (script_->hold && slice.op != transport::Op::message)
        script_->held.push_back(slice);
      else
        script_->end(slice);
    }
    return slices.size();
  }
  std::size_t poll(std::span<transport::Event> events, Time) override {
    lent_.clear();
    std::size_t count = 0;
    for (; count < events.size() && !script_->events.empty(); ++count) {
      Script::Injected one = std::move(script_->events.front());
      script_->events.pop_front();
      lent_.push_back(std::move(one.bytes));
      events[count] = std::move(one.event);
      events[count].bytes = lent_.back();
    }
    return count;
  }
  void fence(transport::LinkId) override {
    end_all();
    script_->inject(transport::EventKind::fenced);
  }
  void reconnect(transport::LinkId) override {
    ++script_->link.epoch;
    script_->inject(transport::EventKind::link_up, {}, script_->link.epoch);
  }
  void cancel(transport::SliceToken token) override {
    const auto held = std::find_if(script_->held.begin(), script_->held.end(),
                                   [&](const transport::Slice& slice) { return slice.token == token; });
    if (held == script_->held.end()) return;
    script_->end(*held, {ErrorCode::cancelled, "by the script"});
    script_->held.erase(held);
  }
  bool prepare_sleep() override { return script_->events.empty(); }
  void close() override {
    end_all();
    closed_ = true;
    script_->wake = nullptr;
  }

 private:
  void end_all() {
    for (const transport::Slice& slice : script_->held) script_->end(slice, {ErrorCode::link_failed, "by the script"});
    script_->held.clear();
  }

  std::shared_ptr<Script> script_;
  std::deque<std::vector<std::byte>> lent_;
  bool closed_ = false;
};

}  // namespace fairway::hostile

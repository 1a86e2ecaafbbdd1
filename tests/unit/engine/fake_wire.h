#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/runtime.h"
#include "engine/links/link.h"
#include "transport/transport.h"

namespace fairway::engine {

// Keeps what it is asked for. What a proof writes lies in `landed`, and its read gets that.
struct FakeWire : transport::Transport {
  explicit FakeWire(std::string name = "wire") : Transport(std::move(name)) {
    transport::Device& device = devices_.emplace_back();
    device.name = "port";
    device.capabilities.operations = static_cast<std::uint8_t>(transport::Op::write) |
                                     static_cast<std::uint8_t>(transport::Op::read) |
                                     static_cast<std::uint8_t>(transport::Op::message);
    device.capabilities.queue_depth = 8;
    device.capabilities.max_message_bytes = 1024;
    device.capabilities.visible_when_done = true;
    landed.resize(kProofBytes);
  }
  Status attach(Task&) override { return {}; }
  Status connect(transport::PeerIndex, transport::Role) override { return refuses; }
  void exchange(transport::PeerIndex, std::span<const std::byte>) override {}
  void disconnect(transport::PeerIndex) override {}
  Result<transport::RegisteredMemory> register_memory(const Region&, const MemorySource&) override {
    return transport::RegisteredMemory{1, {}};
  }
  void deregister(std::uint64_t) override {}
  Result<std::uint64_t> import(transport::PeerIndex, const transport::RemoteMemory&,
                               std::span<const std::vector<std::byte>>) override {
    return std::uint64_t{2};
  }
  void release(std::uint64_t) override {}
  std::size_t post(std::span<const transport::Slice> slices) override {
    const std::size_t taken = std::min(slices.size(), takes);
    for (const transport::Slice& slice : slices.first(taken)) {
      if (slice.length > landed.size()) landed.resize(slice.length);
      if (slice.op == transport::Op::write) std::memcpy(landed.data(), slice.local, slice.length);
      if (slice.op == transport::Op::read) std::memcpy(slice.local, landed.data(), slice.length);
      posted.push_back(slice.token);
      slices_posted.push_back(slice);
    }
    return taken;
  }
  transport::Reach reach(transport::LinkId, std::uint64_t, std::uint64_t, std::string* how) override {
    ++asked;
    if (how != nullptr) *how = "through the wire";
    return reaches;
  }
  std::size_t poll(std::span<transport::Event>, Time) override { return 0; }
  void fence(transport::LinkId link) override { fenced.push_back(link); }
  void reconnect(transport::LinkId) override { ++reconnects; }
  void cancel(transport::SliceToken token) override { cancelled.push_back(token); }
  void close() override {}

  transport::Device& port() { return devices_.front(); }

  Status refuses;
  transport::Reach reaches = transport::Reach::yes;
  int asked = 0;  // whether it reaches two memories
  std::vector<std::byte> landed;
  std::vector<transport::SliceToken> posted;
  std::vector<transport::Slice> slices_posted;
  std::vector<transport::LinkId> fenced;
  std::vector<transport::SliceToken> cancelled;
  std::size_t takes = 64;  // of what is offered at once
  int reconnects = 0;
};

struct CountingRng final : Rng {
  void fill(std::span<std::byte> out) override {
    for (std::byte& byte : out) byte = static_cast<std::byte>(++last);
  }
  int last = 0;
};

}  // namespace fairway::engine

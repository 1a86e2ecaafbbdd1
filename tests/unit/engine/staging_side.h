#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/staging/server.h"
#include "fake_peer.h"

namespace fairway::engine {

inline constexpr std::uint32_t kStagingRecord = 1024;  // bytes

// A device whose copies are over when finish() says so. Its memory is this process's own.
class FakeCopier final : public transport::Copier {
 public:
  std::shared_ptr<StagingBuffer> allocate_staging(std::uint64_t size_bytes) override {
    auto buffer = std::make_shared<StagingBuffer>();
    auto memory = sys::MemoryFile::make(size_bytes);
    if (memory && !refuses_buffers) buffer->memory = std::move(*memory);
    buffer->why = refuses_buffers ? "none is left" : "";
    buffer->state = refuses_buffers ? Readiness::refused : Readiness::ready;
    return buffer;
  }
  Readiness copy(RegionId, std::span<const Copy> copies, bool, void* after, Ticket& out, std::string& why) override {
    why = is == Readiness::refused ? "the device is gone" : "";
    if (is != Readiness::ready) return is;
    queued.insert(queued.end(), copies.begin(), copies.end());
    gates += after != nullptr ? 1 : 0;
    out.serial = ++serial;
    return is;
  }
  void flush() override {}
  Readiness poll(const Ticket& ticket, std::string& why) override {
    why = fails ? "the device failed" : "";
    return ticket.serial > over ? Readiness::opening : fails ? Readiness::refused : Readiness::ready;
  }
  void finish() {
    for (const Copy& copy : queued) std::memcpy(copy.to, copy.from, copy.size);
    copied += queued.size();
    queued.clear();
    over = serial;
  }

  std::vector<Copy> queued;
  std::size_t copied = 0;
  std::uint32_t serial = 0, over = 0;
  int gates = 0;
  Readiness is = Readiness::ready;
  bool fails = false, refuses_buffers = false;
};

// What one side of staged transfers has: a peer without an engine, and a worker's Staging.
struct StagingSide {
  // What a step of the worker does, and the device.
  void step() {
    (void)staging.proceed(peer.time);
    copier.finish();
    (void)staging.proceed(peer.time);
  }

  FakePeer peer;
  FakeCopier copier;
  std::atomic_flag atomics;
  Staging staging{peer, peer.tables, &copier, peer.table.capacity(), atomics};
};

// One peer of a worker that lends.
struct StagingTarget {
  explicit StagingTarget(StagingSide& worker) : side(worker) { server.greeted(kStagingRecord); }
  void take(const RecordHeader& r) {
    using namespace record;
    switch (r.type) {
      case RecordType::stage_ask: return server.on_ask(decode<StageAsk>(r.body)->value);
      case RecordType::stage_end: return server.on_end(decode<StageEnd>(r.body)->value);
      case RecordType::stage_put: return server.on_copy(decode<StagePut>(r.body)->copy, true);
      case RecordType::stage_get: return server.on_copy(decode<StageGet>(r.body)->copy, false);
      default: FAIL() << "no record of a staging client";
    }
  }
  // The types of what it has sent since.
  std::vector<RecordType> sent() {
    std::vector<RecordType> types;
    for (const std::uint32_t record : peer.take_records()) types.push_back(peer.header(record).type);
    return types;
  }

  StagingSide& side;
  FakePeer peer{side.peer.local};
  std::function<void(Status)>& ending = peer.ending;
  std::vector<RegionId>& closed = peer.closed;
  StagingServer server{peer, side.staging};
};

}  // namespace fairway::engine

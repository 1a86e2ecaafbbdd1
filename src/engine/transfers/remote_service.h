#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/peer_context.h"
#include "engine/staging/device_operations.h"

namespace fairway::engine {

// Serves a peer's requests for what links cannot do: put, get, atomics, checksums and flush on this engine's regions.
// Each request is checked against the region table and the limits that this side announced, and gets one reply.
// Requests on device memory, which no CPU reaches, are passed to DeviceOperations. Owner: the peer's worker.
class RemoteService {
 public:
  struct Parts {
    std::function<Status(RegionId)> flush;                  // makes what arrived there visible, at every transport
    std::function<void(const DeviceOperation&)> on_device;  // goes on with it, and replies
    std::function<void()> notice;                           // something is there for the user
  };
  RemoteService(PeerContext& peer, Parts parts) : peer_(peer), parts_(std::move(parts)) {}
  void greeted(std::size_t record_payload) { record_payload_ = record_payload; }  // the peer's hello

  void on_put(const record::Put& put);
  void on_get(const record::Get& get);
  void on_atomic(const record::Atomic& atomic);
  void on_sum(const record::Sum& sum);
  void on_flush(const record::Flush& flush);
  void reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
             std::span<const std::byte> data = {});

 private:
  PeerContext& peer_;
  const Parts parts_;
  std::size_t record_payload_ = 0;
};

}  // namespace fairway::engine

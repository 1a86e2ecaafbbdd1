#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/staging/staging.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/regions.h"
#include "engine/tables/slices.h"

namespace fairway::engine {

// Requests to the peer's engine, for what links cannot do: put and get in place of write and read, atomics by the
// target's CPU, flush, checksum, signal. A request is a record. The reply repeats its token and serial, so a reply that
// comes after the transfer has ended is recognised and dropped. Owner: the peer's worker.
class RemoteRequests {
 public:
  static constexpr std::uint32_t kMost = 32;  // outstanding
  // `device`: of checksums of a device's memory here.
  RemoteRequests(PeerContext& peer, DeviceOperationRunner& device) : peer_(peer), device_(device) {}

  // A piece of a transfer, under a token that it already holds and that counts in pieces_out. False: the transfer
  // failed. Only with left().
  bool put_get_or_atomic(std::uint32_t slot, const Piece& piece, std::uint32_t token);
  [[nodiscard]] std::uint32_t left() const { return kMost - out_; }
  // What the transfer's phase asks for: flush, checksum or signal; now, or when a request is free.
  void request(std::uint32_t slot);
  [[nodiscard]] bool has_work() const { return !waiting_.empty(); }
  void proceed();
  void on_reply(const record::Reply& reply);
  void compare(std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs);

  void forget(std::uint32_t slot) { std::erase(waiting_, slot); }  // it has failed
  void dropped() { --out_; }                                       // one whose transfer has failed
  void clear() { waiting_.clear(); }                               // the peer is gone

 private:
  bool begin(std::uint32_t slot);
  bool flush(std::uint32_t slot);
  bool sum(std::uint32_t slot);
  bool signal(std::uint32_t slot);
  std::optional<RequestHead> head_for(std::uint32_t slot, RemoteRegionId region);

  PeerContext& peer_;
  DeviceOperationRunner& device_;
  std::uint32_t out_ = 0;
  std::vector<std::uint32_t> waiting_;  // transfers, for a free request
};

// Serves a peer's requests for what links cannot do: put, get, atomics, checksums and flush on this engine's regions.
// Each request is checked against the region table and the limits that this side announced, and gets one reply.
// Requests on device memory, which no CPU reaches, are passed to DeviceOperations. Owner: the peer's worker.
class RemoteService {
 public:
  // `device`: of requests on a device's memory here: it replies.
  RemoteService(PeerContext& peer, DeviceOperationRunner& device) : peer_(peer), device_(device) {}
  void greeted(std::size_t record_payload) { record_payload_ = record_payload; }  // the peer's hello

  void on_put(const record::Put& put);
  void on_get(const record::Get& get);
  void on_atomic(const record::Atomic& atomic);
  void on_sum(const record::Sum& sum);
  void on_flush(const record::Flush& flush);
  void reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
             std::span<const std::byte> data = {});

 private:
  [[nodiscard]] Status make_visible(RegionId region) const;  // what arrived there, over any transport, is visible

  PeerContext& peer_;
  DeviceOperationRunner& device_;
  std::size_t record_payload_ = 0;
};

}  // namespace fairway::engine

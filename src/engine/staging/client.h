#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/staging/pool.h"
#include "engine/staging/staging.h"
#include "engine/tables/turns.h"

namespace fairway::engine {

// Staged transfers at their initiator, chunk by chunk. A write goes local memory -> slot here -> slot there -> the
// peer's memory, a read the other way. Memory that links reach needs no slot, and neither does device memory here if a
// link moves bytes between it and the peer's slot. server.h is the peer's side. Owner: the peer's worker.
class StagingClient final : public DeviceOperationRunner, private ChunkOwner, private DeviceOperationOwner {
 public:
  StagingClient(PeerContext& peer, Staging& staging)
      : peer_(peer), staging_(staging), pool_(staging.pool), lease_(peer) {}
  void greeted(std::uint32_t record_bytes) { record_bytes_ = record_bytes; }  // the peer's hello

  // ---- transfers ----
  Turn move(std::uint32_t slot);  // the turn of one that is routed so
  // For a piece, no longer than a slot, whose link was lost. Null: not now, or the transfer has failed. Begin it by
  // stage(); it takes the piece's place in Transfer::pieces_out.
  StagedChunk* take_chunk(std::uint32_t slot, std::uint64_t block) { return take_chunk(slot, block, false); }
  void stage(StagedChunk& chunk, const Piece& piece);
  void inner_ended(std::uint32_t slot, const Status& status);  // a transfer of the engine's own: it has been retired
  void stop(std::uint32_t slot);  // draining: what can be stopped is; copies under way end by themselves
  // Calls visit(slot) for the engine's own transfers that move chunks of that one.
  template <class Visit>
  void for_each_inner(std::uint32_t slot, const Visit& visit) {
    for (StagedChunk& chunk : pool_.chunks())
      if (chunk.state == StagedChunk::State::moving && chunk.transfer == slot) visit(chunk.inner);
  }
  void run(DeviceOperation operation) override;  // a checksum; PeerContext::compare() follows

  // ---- the lease ----
  StagingLease& lease() { return lease_; }
  void on_done(const record::StageDone& done);
  void peer_gone();
  // The memory that links write into or read from in place of the peer's; nothing: there is no lease, or no link moves
  // between it and that memory of a device here.
  [[nodiscard]] std::optional<RemoteRegionId> reached_from(RegionId local) const;

 private:
  using State = StagedChunk::State;
  using Readiness = transport::Copier::Readiness;

  StagedChunk* take_chunk(std::uint32_t slot, std::uint64_t block, bool gate);
  Status cut(StagedChunk& chunk, Cursor& cursor, std::size_t most_parts, std::uint64_t most = kSlotBytes);
  void begin(StagedChunk& chunk);
  void begin_copy(StagedChunk& chunk);
  void queue_copy(StagedChunk& chunk);
  bool proceed(StagedChunk& chunk) override;
  void begin_inner(StagedChunk& chunk);
  void ask_peer(StagedChunk& chunk);
  void give_back_here(StagedChunk& chunk);
  void give_back_there(StagedChunk& chunk);
  void free(StagedChunk& chunk);
  void end(StagedChunk& chunk, const Status& status);  // it did its part, or the transfer cannot go on
  [[nodiscard]] bool wants(const DeviceOperation& operation) const override;
  void ended(const DeviceOperation& operation, ErrorCode code) override;

  PeerContext& peer_;
  Staging& staging_;
  StagingPool& pool_;
  StagingLease lease_;
  std::array<std::uint32_t, kSlots> chunks_{};  // by the peer's slot, while it is in use
  std::uint32_t record_bytes_ = 0;
};

}  // namespace fairway::engine

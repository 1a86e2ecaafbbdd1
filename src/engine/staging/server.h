#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/staging/staging.h"
#include "engine/tables/peer_context.h"

namespace fairway::engine {

// Serves a peer that stages. The peer has a lease on a staging buffer and writes or reads its slots; this side copies
// between the slots and its device memory. Each copy is checked against the region table right before it is queued.
// Also serves the peer's checksums of device memory and atomics on it. Owner: the peer's worker.
class StagingServer final : public DeviceOperationRunner, private LeaseHolder, private DeviceOperationOwner {
 public:
  static constexpr std::uint32_t kMostOperations = 256;  // more, and the peer lies about its limit
  StagingServer(PeerContext& peer, Staging& staging) : peer_(peer), staging_(staging) {}
  void greeted(std::size_t record_payload) { record_payload_ = record_payload; }  // the peer's hello

  // ---- records ----
  void on_ask(std::uint32_t number);
  void on_end(std::uint32_t number);
  void on_copy(const StageCopy& copy, bool put);

  void run(DeviceOperation operation) override;  // the peer's; the reply follows
  void peer_gone();                              // what a device copies for it ends by itself, and then the lease
  [[nodiscard]] bool has_ended() const { return state_ == State::none && operations_ == 0; }

 private:
  enum class State : std::uint8_t { none, waiting, making, open };
  struct Copy {
    bool busy = false, queued = false, put = false;
    RegionId region;
    std::vector<StagedPart> parts;  // `remote` is the offset in the region
    transport::Copier::Ticket ticket;
  };

  void lend() override;
  bool proceed() override;
  [[nodiscard]] Time lent_since() const override { return lent_since_; }
  [[nodiscard]] bool had_turn(Time now) const override;
  void recall() override;
  [[nodiscard]] bool copies(RegionId region) const override;
  [[nodiscard]] bool wants(const DeviceOperation& operation) const override;
  void ended(const DeviceOperation& operation, ErrorCode code) override;

  void begin_wait(std::uint32_t number);
  void grant(ErrorCode code);
  void open();
  void close();
  void queue(std::uint8_t slot);
  void end(std::uint8_t slot, ErrorCode code);
  [[nodiscard]] bool is_copying() const;

  PeerContext& peer_;
  Staging& staging_;
  std::size_t record_payload_ = 0;

  State state_ = State::none;
  bool used_ = false, recalled_ = false;
  std::uint32_t number_ = 0, next_ = 0;  // next: asked for while this one was there; 0: none
  Time lent_since_ = 0;
  std::shared_ptr<transport::Copier::StagingBuffer> buffer_;
  RegionId region_;
  std::vector<Copy> copies_;  // by slot, once a lease was granted
  std::uint32_t operations_ = 0;
};

}  // namespace fairway::engine

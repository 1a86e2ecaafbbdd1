#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "engine/staging/pool.h"
#include "engine/tables/route.h"
#include "transport/region_table.h"

namespace fairway::engine {

struct DeviceOperation;

// Who wants to know an operation's outcome.
class DeviceOperationOwner {
 public:
  [[nodiscard]] virtual bool wants(const DeviceOperation& operation) const = 0;  // still
  virtual void ended(const DeviceOperation& operation, ErrorCode code) = 0;

 protected:
  ~DeviceOperationOwner() = default;
};

// An operation that the CPU does for device memory: a checksum, or an atomic on one word.
struct DeviceOperation {
  enum class Kind : std::uint8_t {
    peers_checksum,  // for a peer's request
    own_checksum,    // of this side's half of a transfer that is being verified
    atomic,          // for a peer's request
  };
  Kind kind = Kind::peers_checksum;
  bool queued = false;     // the device has the copy
  bool writeback = false;  // an atomic's new value goes to the device
  bool holds = false;      // the engine's one place for atomics on devices' memory
  std::uint8_t here = kInPlace;
  std::uint8_t operation = 0;             // an atomic's, as in its record
  DeviceOperationOwner* owner = nullptr;  // null: it has ended
  std::uint32_t token = 0, serial = 0;    // of the request; of an own checksum, the transfer's slot
  RegionId region;
  std::uint64_t offset = 0, length = 0, done = 0;
  std::uint64_t value = 0;                  // a checksum so far; an atomic's old value
  std::uint64_t operand = 0, expected = 0;  // of an own checksum, the peer's
  Piece piece;                              // of an own checksum
  transport::Copier::Ticket ticket;
};

// Who takes operations on device memory, and hears of their outcome.
class DeviceOperationRunner {
 public:
  virtual void run(DeviceOperation operation) = 0;

 protected:
  ~DeviceOperationRunner() = default;
};

// Checksums of device memory, and atomics on it, in the order of the requests. The bytes are copied to a slot on this
// side, and the CPU computes; an atomic's new value is copied back. Only the engine of the memory's owner executes such
// atomics, one at a time. So they are atomic among all engines, but not against kernels that write the same word.
// Owner: the worker.
class DeviceOperations {
 public:
  // `atomics`: held by the worker of the engine that executes one.
  DeviceOperations(StagingPool& pool, transport::RegionTable& regions, std::atomic_flag& atomics)
      : pool_(pool), regions_(regions), atomics_(atomics) {}

  void begin(const DeviceOperation& operation);  // with its owner; DeviceOperationOwner::ended() follows
  // In each step of the worker. True: a device has copies.
  bool proceed();
  [[nodiscard]] bool copies(RegionId region) const;  // a device copies from or to it

 private:
  using Kind = DeviceOperation::Kind;

  void proceed(DeviceOperation& operation);
  bool copied(DeviceOperation& operation);   // its last copy is over. False: so is the operation
  bool prepare(DeviceOperation& operation);  // what its next copy needs. False: not now, or it has ended
  void copy(DeviceOperation& operation);
  ErrorCode find(const DeviceOperation& operation, transport::RegionTable::Resolved& out) const;
  void end(DeviceOperation& operation, ErrorCode code);

  StagingPool& pool_;
  transport::RegionTable& regions_;
  std::atomic_flag& atomics_;
  std::deque<DeviceOperation> all_;  // one may lead to another, and those before it stay where they are
};

// A worker's part of staging, which its peers share. Owner: the worker.
struct Staging {
  Staging(WorkerContext& worker, WorkerTables& tables, transport::Copier* copier, std::uint32_t first_inner,
          std::atomic_flag& atomics)
      : pool(worker, tables.locals, copier, first_inner),
        operations(pool, tables.regions, atomics),
        leases(pool, tables.regions) {}

  [[nodiscard]] bool has_work() const { return pool.has_work(); }
  // Called in each step of the worker while there is work; its cost does not grow with the number of peers. True: a
  // device has copies, whose end wakes nobody, so keep polling.
  bool proceed(Time now);
  // A device copies from or to that region for a peer, or for a checksum.
  [[nodiscard]] bool copies(RegionId region) const {
    return has_work() && (operations.copies(region) || leases.copies(region));
  }

  StagingPool pool;
  DeviceOperations operations;
  StagingLeases leases;
};

}  // namespace fairway::engine

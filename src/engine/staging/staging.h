#pragma once

#include "engine/staging/device_operations.h"
#include "engine/staging/leases.h"
#include "engine/staging/pool.h"

namespace fairway::engine {

// A worker's part of staging, which its peers share. Owner: the worker.
struct Staging {
  Staging(StagingPool::Parts parts, transport::RegionTable& regions, std::atomic_flag& atomics)
      : pool(std::move(parts)), operations(pool, regions, atomics), leases(pool, regions) {}

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

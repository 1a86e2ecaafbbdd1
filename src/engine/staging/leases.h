#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/staging/pool.h"
#include "transport/region_table.h"

namespace fairway::engine {

inline constexpr std::uint32_t kMostLeases = 16;       // of a worker's staging buffers to peers at once
inline constexpr Time kLeaseTurn = 10 * kMillisecond;  // a lease with work is kept that long, however many peers wait

// A peer that has a lease, or waits for one.
class LeaseHolder {
 public:
  virtual void lend() = 0;  // its turn has come
  // In each step of the worker, while it has a lease. True: a device has copies.
  virtual bool proceed() = 0;
  [[nodiscard]] virtual Time lent_since() const = 0;
  [[nodiscard]] virtual bool had_turn(Time now) const = 0;       // its lease may be recalled: it has been used
  virtual void recall() = 0;                                     // asks it
  [[nodiscard]] virtual bool copies(RegionId region) const = 0;  // a device copies from or to it for the peer

 protected:
  ~LeaseHolder() = default;
};

// The leases that a worker has granted to its peers. Waiting peers are served in order; for each that still waits, the
// oldest lease is recalled. Owner: the worker.
class StagingLeases {
 public:
  StagingLeases(StagingPool& pool, transport::RegionTable& regions) : pool_(pool), regions_(regions) {}

  void wait(LeaseHolder& holder);
  void wait_no_more(LeaseHolder& holder);  // of one that does not wait: nothing
  void drop(LeaseHolder& holder);          // what it was lent could not be made
  // It gave its lease back. ended() follows, once nothing of this engine touches the buffer's region any more.
  void close(LeaseHolder& holder);
  void ended(RegionId region, bool recalled, std::shared_ptr<transport::Copier::StagingBuffer> buffer,
             const Status& fenced);

  // In each step of the worker. True: a device has copies.
  bool proceed(Time now);
  [[nodiscard]] bool copies(RegionId region) const;

 private:
  void share(Time now);

  StagingPool& pool_;
  transport::RegionTable& regions_;
  std::deque<LeaseHolder*> waiting_;
  std::vector<LeaseHolder*> holders_;
  std::uint32_t closing_ = 0;   // leases that were given back, until their buffers are gone
  std::uint32_t recalled_ = 0;  // of all
};

}  // namespace fairway::engine

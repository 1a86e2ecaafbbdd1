#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/tables/record.h"
#include "engine/tables/regions.h"
#include "engine/tables/slices.h"
#include "engine/tables/transfer.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::engine {

// What the parts of a worker ask of it.
class WorkerContext : public OutboxOwner {
 public:
  virtual void again() = 0;  // there is more to do in this step or the next

 protected:
  ~WorkerContext() = default;
};

// A worker's transports, and the tables that its peers share. Owner: the worker.
struct WorkerTables {
  using Transports = std::vector<std::unique_ptr<transport::Transport>>;
  // `all`, `regions` and `bounds` (of imported regions) are the engine's. `peers`: how many slots of peers there are.
  WorkerTables(std::uint16_t worker, OutboxOwner& owner, Transports made, TransferTable& all,
               transport::RegionTable& of_engine, transport::RegionTable& bounds, std::uint32_t most_slices,
               std::uint32_t peers)
      : transports(std::move(made)),
        transfers(all),
        regions(of_engine),
        locals(transports, worker, of_engine),
        remotes(transports, bounds),
        slices(most_slices, peers),
        outbox(transports, owner) {}

  const Transports transports;
  TransferTable& transfers;
  transport::RegionTable& regions;
  LocalRegions locals;
  RemoteRegions remotes;
  SliceTable slices;
  RecordPool records;
  Outbox outbox;
};

}  // namespace fairway::engine

#pragma once

#include <cstdint>

#include "fairway/memory.h"
#include "fairway/options.h"
#include "fairway/request.h"
#include "fairway/status.h"

#include "engine/tables/peer_table.h"
#include "engine/tables/regions.h"
#include "engine/tables/transfer.h"
#include "transport/region_table.h"

// Checks that enumerations from callers hold one of their values, since other languages can pass any number. Pure; does
// not check peers, regions or arrays. The error, invalid_argument, names the field.
namespace fairway::engine {

Status check_values(const Request& request);
Status check_values(Access access, MemoryKind kind);
Status check_values(const EngineOptions& options);

// Whether a request can be accepted: all checks that do not read the caller's arrays. Those are checked block by block
// as they are moved. Any thread, without a lock; borrows the tables.
class RequestCheck {
 public:
  RequestCheck(const transport::RegionTable& regions, const transport::RegionTable& remotes, const PeerTable& peers,
               const TransferTable& transfers)
      : regions_(regions), remotes_(remotes), peers_(peers), transfers_(transfers) {}

  // Each error names the field, or which side's region is wrong.
  [[nodiscard]] Status check(const Request& request) const;
  // A send or receive that check() accepts and that asks for nothing else, as most are.
  [[nodiscard]] bool is_plain_message(const Request& request) const;

 private:
  [[nodiscard]] Status check_signal(const Notify& notify) const;
  [[nodiscard]] Status check_pieces(const Request& request) const;
  [[nodiscard]] Status check_blocks(const Request& request) const;
  [[nodiscard]] Status check_local(const Slice& slice, bool written) const;
  [[nodiscard]] Status check_remote(const RemoteAddress& place, std::uint64_t length, Access needed) const;
  [[nodiscard]] bool is_in_device(const RemoteAddress& place) const;

  const transport::RegionTable& regions_;
  const transport::RegionTable& remotes_;
  const PeerTable& peers_;
  const TransferTable& transfers_;
};

// Bounds checks of a transfer's blocks, right before each use, because a region may end at any time.

// Not reached by a CPU; false also once the region has ended.
bool in_device(const transport::RegionTable& table, RegionId id);

// Part of a block of the transfer, on both sides; ok, and where it begins here, or why not.
Status resolve(const transport::RegionTable& regions, const RemoteRegions& remotes, const Transfer& transfer,
               std::uint64_t index, const Block& block, std::uint64_t offset, std::uint64_t length, std::byte*& local);

}  // namespace fairway::engine

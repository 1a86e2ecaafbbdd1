#pragma once

#include <cstdint>

#include "fairway/request.h"
#include "fairway/status.h"

#include "engine/peer_table.h"
#include "engine/transfers/transfer.h"
#include "transport/region_table.h"

namespace fairway::engine {

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

}  // namespace fairway::engine

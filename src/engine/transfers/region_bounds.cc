#include "engine/transfers/region_bounds.h"

#include <string>

namespace fairway::engine {

bool in_device(const transport::RegionTable& table, RegionId id) {
  transport::RegionTable::Resolved found;
  return table.resolve(id, 0, 0, Access::none, found) == ErrorCode::ok && !reached_by_cpu(found.kind);
}

Status resolve(const transport::RegionTable& regions, const RemoteRegions& remotes, const Transfer& transfer,
               std::uint64_t index, const Block& block, std::uint64_t offset, std::uint64_t length, std::byte*& local) {
  const Access needed = transfer.request.operation == Operation::read ? Access::read : Access::write;
  transport::RegionTable::Resolved found;
  ErrorCode code = regions.resolve(block.local, block.local_offset + offset, length, Access::none, found);
  if (code != ErrorCode::ok) return {code, "block " + std::to_string(index) + " lies outside its local region"};
  if (needed == Access::read && !regions.is_writable(block.local))
    return {ErrorCode::access_denied, "block " + std::to_string(index) + " lies in read-only memory of this process"};
  local = found.address;
  code = remotes.allows({block.remote, block.remote_offset + offset}, length, needed);
  if (code == ErrorCode::access_denied) return {code, "the peer did not register the region for this"};
  if (code != ErrorCode::ok) return {code, "block " + std::to_string(index) + " lies outside the peer's region"};
  return {};
}

}  // namespace fairway::engine

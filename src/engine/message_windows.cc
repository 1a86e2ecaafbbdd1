#include "engine/message_windows.h"

#include <utility>

namespace fairway::engine {

Result<RegionId> MessageWindows::open_window(const Slice& into, std::uint64_t length, std::size_t most,
                                             std::vector<std::byte>& described) {
  transport::RegionTable& regions = peer_.regions();
  transport::RegionTable::Resolved local;
  if (const ErrorCode code = regions.resolve(into.region, into.offset, length, Access::none, local);
      code != ErrorCode::ok)
    return Status(code, "the receive's memory is gone");
  const auto window = regions.add(local.address, length, local.kind, Access::write);
  if (!window) return window.status();
  RegionFile file = parts_.locals.file_of(into.region);
  file.offset += into.offset;
  Registration registration = parts_.locals.register_with_all(
      {*window, local.address, length, local.kind, Access::write}, {local.kind, file.fd, file.offset});
  Description description;
  description.region = *window;
  description.size_bytes = length;
  description.kind = local.kind;
  description.access = Access::write;
  description.keys = std::exchange(registration.keys, {});  // nobody asks for them again
  parts_.locals.add(*window, std::move(registration), file, parts_.locals.at_of(into.region));
  described = format_description(std::move(description), most);
  return *window;
}

void MessageWindows::close_window(RegionId window, std::uint32_t slot) {
  (void)peer_.regions().revoke(window);
  parts_.remove(window, slot);
}

RemoteRegionId MessageWindows::import_window(Description window, Status& error) {
  return parts_.remotes.import(parts_.owner, std::move(window), error);
}

void MessageWindows::release_window(RemoteRegionId window) {
  parts_.remotes.release(window);
}

}  // namespace fairway::engine

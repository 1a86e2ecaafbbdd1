#include "engine/messages/windows.h"

#include <utility>

#include "sys/memory_file.h"

namespace fairway::engine {

Result<RegionId> MessageWindows::open_window(const Slice& into, std::uint64_t length, std::size_t most,
                                             std::vector<std::byte>& described) {
  transport::RegionTable::Resolved local;
  if (const ErrorCode code = peer_.regions().resolve(into.region, into.offset, length, Access::none, local);
      code != ErrorCode::ok)
    return Status(code, "the receive's memory is gone");
  RegionFile file = peer_.locals().file_of(into.region);
  file.offset += into.offset;
  return open_at({local.address, local.kind, file, peer_.locals().at_of(into.region)}, length, most, described);
}

Result<RegionId> MessageWindows::open_gathering(std::uint64_t length, std::size_t most,
                                                std::vector<std::byte>& described, std::byte*& memory) {
  auto made = sys::MemoryFile::make(length);
  if (!made) return made.status();
  auto kept = std::make_shared<sys::MemoryFile>(std::move(*made));
  memory = kept->address();
  const auto window = open_at({memory, MemoryKind::host, {kept->fd(), 0}, {}}, length, most, described);
  if (window) gathering_[window->slot] = std::move(kept);
  return window;
}

Result<RegionId> MessageWindows::open_at(const Place& place, std::uint64_t length, std::size_t most,
                                         std::vector<std::byte>& described) {
  const auto window = peer_.regions().add(place.address, length, place.kind, Access::write);
  if (!window) return window.status();
  Registration registration = peer_.locals().register_with_all(
      {*window, place.address, length, place.kind, Access::write}, {place.kind, place.file.fd, place.file.offset});
  Description description;
  description.region = *window;
  description.size_bytes = length;
  description.kind = place.kind;
  description.access = Access::write;
  description.keys = std::exchange(registration.keys, {});  // nobody asks for them again
  peer_.locals().add(*window, std::move(registration), place.file, place.at);
  described = format_description(std::move(description), most);
  return *window;
}

void MessageWindows::close_window(RegionId window, std::uint32_t slot) {
  (void)peer_.regions().revoke(window);
  std::shared_ptr<void> kept;
  if (!gathering_.empty())
    if (const auto found = gathering_.find(window.slot); found != gathering_.end()) {
      kept = std::move(found->second);
      gathering_.erase(found);
    }
  peer_.remove_window(window, slot, std::move(kept));
}

RemoteRegionId MessageWindows::import_window(Description window, Status& error) {
  return peer_.remotes().import(peer_.owner(), std::move(window), error);
}

void MessageWindows::release_window(RemoteRegionId window) {
  peer_.remotes().release(window);
}

}  // namespace fairway::engine

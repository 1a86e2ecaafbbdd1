#include "engine/message_windows.h"

#include "engine/worker.h"

namespace fairway::engine {

Result<RegionId> MessageWindows::open_window(const Slice& into, std::uint64_t length, std::size_t most,
                                             std::vector<std::byte>& described) {
  transport::RegionTable& regions = worker_.services().regions;
  transport::RegionTable::Resolved local;
  if (const ErrorCode code = regions.resolve(into.region, into.offset, length, Access::none, local);
      code != ErrorCode::ok)
    return Status(code, "the receive's memory is gone");
  const auto window = regions.add(local.address, length, local.kind, Access::write);
  if (!window) return window.status();
  RegionFile file = worker_.locals().file_of(into.region);
  file.offset += into.offset;
  transport::MemoryDescription memory;
  memory.id = *window;
  memory.address = local.address;
  memory.size_bytes = length;
  memory.kind = local.kind;
  memory.access = Access::write;
  memory.memory_fd = file.fd;
  memory.memory_offset = file.offset;
  Registration registration = worker_.locals().register_with_all(memory);
  Description description = worker_.locals().describe(*window);
  description.keys = registration.keys;
  worker_.locals().add(*window, std::move(registration), file, worker_.locals().at_of(into.region));
  described = format_description(std::move(description), most);
  return *window;
}

void MessageWindows::close_window(RegionId window, std::uint32_t slot) {
  (void)worker_.services().regions.revoke(window);
  const TransferId waits = slot == kNoSlot ? TransferId{} : worker_.services().transfers.id(slot);
  worker_.remove_region(window, &peer_, [worker = &worker_, window, waits, id = peer_.id()](const Status&) {
    worker->services().regions.remove(window);
    if (!waits || !worker->services().transfers.is_active(waits)) return;
    if (Peer* owner = worker->peer_of(id)) owner->window_closed(waits.slot);
  });
}

RemoteRegionId MessageWindows::import_window(const Description& window, Status& error) {
  return worker_.remotes().import(peer_.owner(), window, error);
}

void MessageWindows::release_window(RemoteRegionId window) {
  worker_.remotes().release(window);
}

}  // namespace fairway::engine

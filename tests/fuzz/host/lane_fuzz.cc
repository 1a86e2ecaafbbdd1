#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/command.h"
#include "transport/host/lane.h"

using namespace fairway;
using namespace fairway::transport;

namespace {

constexpr std::size_t kRegion = 4096;
constexpr std::byte kGuard{0x5a};

// Takes bytes off the input; zeros past its end.
struct Input {
  std::span<const std::byte> left;
  void take(void* into, std::size_t size) {
    std::memset(into, 0, size);
    const std::size_t some = std::min(size, left.size());
    if (some != 0) std::memcpy(into, left.data(), some);
    left = left.subspan(some);
  }
  template <class T>
  T take() {
    T value;
    take(&value, sizeof value);
    return value;
  }
};

}  // namespace

// A lane whose peer has written whatever the input says into the shared memory, its ring, its region table and its
// keys, while slices of every kind are under way by mapped memory and by records: no byte outside a region with that
// permission changes, and each slice ends exactly once.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  alignas(8) static std::array<std::byte, 7 * kRegion> memory;
  memory.fill(kGuard);
  RegionTable regions(8);
  const auto at = [&](std::size_t i) { return memory.data() + i * kRegion; };
  const auto open = regions.add(at(1), kRegion, MemoryKind::host, Access::all);
  const auto readable = regions.add(at(3), kRegion, MemoryKind::host, Access::read);
  const auto own = regions.add(at(5), kRegion, MemoryKind::host, Access::none);
  if (!open || !readable || !own) std::abort();

  Input input{std::as_bytes(std::span(data, size))};
  auto pair = std::make_shared<host::Pair>();
  const auto segment = std::make_unique<host::Segment>();
  pair->segment = segment.get();
  pair->no_cma = "the peer is an input";
  // The peer's region table: two slots, the first of them usually such that slices go on.
  std::array<RegionSlot<>, 2> table;
  const auto lies = input.take<std::uint64_t>();
  table[0].publish(nullptr, (lies & 1) != 0 ? lies : kRegion, MemoryKind::host, Access::all);
  pair->regions = RegionView(table.data(), table.size());
  auto file = std::make_shared<host::PeerFile>();
  static sys::MemoryFile pages = std::move(sys::MemoryFile::make(kRegion)).value();
  {
    sys::Fd copy(::dup(pages.fd()));
    *file->map = std::move(sys::MappedFile::map_whole(copy, true)).value();
    file->method = host::Method::mapped;
  }
  host::Imports imports;
  const auto offset = input.take<std::uint64_t>();
  const std::uint64_t mapped = imports.add(7, {0, 1}, {host::Method::mapped, file, (lies & 2) != 0 ? offset : 0, {}});
  const std::uint64_t by_records = imports.add(7, {0, 1}, {host::Method::bounced, nullptr, 0, {}});

  EventQueue queue;
  CostCounters counters;
  host::Lane lane(pair, {0, 1}, 7, regions, imports, queue, counters, nullptr);
  const std::uint64_t index[] = {1, 0};
  SliceToken token = 0;
  for (const std::uint64_t remote : {mapped, by_records})
    for (const Op op : {Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap, Op::write_immediate}) {
      if (lane.broken()) break;
      Command command;
      command.slice.op = op;
      command.slice.token = token++;
      command.slice.local = at(5);
      command.slice.length = op == Op::message ? 100 : 512;
      if (op == Op::read) {
        command.slice.shape = Shape::indexed;
        command.slice.count = 2;
        command.slice.local_index = command.slice.remote_index = index;
        command.slice.local_stride = command.slice.remote_stride = 512;
      }
      command.slice.local_handle = handle_of(*own);
      command.slice.remote_handle = remote;
      command.local_begin = at(5);
      command.local_size = kRegion;
      command.region = {0, 1};
      if (!lane.post(command)) std::abort();
    }
  std::map<SliceToken, int> ended;
  std::array<Event, 16> events;
  const auto poll = [&] {
    queue.begin_poll();
    while (const std::size_t count = queue.take(events))
      for (const Event& event : std::span(events).first(count))
        if (event.kind == EventKind::done || event.kind == EventKind::failed)
          if (++ended[event.token] > 1) std::abort();
  };
  poll();
  host::Direction& in = segment->directions[1];
  host::Direction& out = segment->directions[0];
  for (std::uint32_t cell = 0; !input.left.empty() && !lane.broken(); ++cell) {
    const auto how = input.take<std::uint8_t>();
    host::Record record;
    input.take(&record, sizeof record);
    if ((how & 1) != 0) record.length %= kMessageBytes + 1;
    if ((how & 2) != 0) record.region = {0, 1};
    if ((how & 4) != 0) record.offset %= kRegion;
    in.cells[cell % host::kCells].record = record;
    in.cells[cell % host::kCells].stamp.store((how & 8) != 0 ? record.immediate : cell + 1);
    if ((how & 16) != 0) out.freed.store(record.immediate);
    if ((how & 32) != 0) out.freed_bytes.store(record.payload);
    if ((how & 64) != 0) in.touching.store(record.value);
    if (how == 255) segment->ends[1].closed.store(1);
    constexpr std::uint64_t kBudget = 1 << 16;
    lane.receive(kBudget);
    lane.work(kBudget, kBudget);
    poll();
  }
  lane.fence();
  pair->gone = true;
  if (!lane.fenced()) std::abort();
  poll();
  if (ended.size() != token) std::abort();
  for (const std::size_t guarded : {0u, 2u, 3u, 4u, 6u})
    if (std::any_of(at(guarded), at(guarded) + kRegion, [](std::byte each) { return each != kGuard; })) std::abort();
  return 0;
}

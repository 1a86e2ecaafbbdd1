#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "core/crc32c.h"
#include "transport/command.h"
#include "transport/tcp/lane.h"

using namespace fairway;
using namespace fairway::transport;

namespace {

// Says what the input says, in reads of changing size, and takes what is sent in writes of changing size.
class Script final : public Channel {
 public:
  explicit Script(std::span<const std::byte> says) : says_(says) {}
  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    taken_ = taken_ * 5 + 3;
    return std::min<std::size_t>(bytes.size(), 1 + taken_ % 4096);
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    if (says_.empty()) return Status(ErrorCode::closed, "the end of the input");
    given_ = given_ * 7 + 1;
    const std::size_t size = std::min({says_.size(), into.size(), std::size_t{1} + given_ % 8192});
    std::memcpy(into.data(), says_.data(), size);
    says_ = says_.subspan(size);
    return size;
  }
  std::string peer_address() const override { return "the script"; }

 private:
  std::span<const std::byte> says_;
  std::size_t taken_ = 1, given_ = 1;
};

// The input with right sums, as far as it is frames: without them nothing would get past the first check.
std::vector<std::byte> sealed(std::span<const std::byte> input) {
  std::vector<std::byte> out(input.begin(), input.end());
  const auto put = [&](std::size_t at, auto value) { std::memcpy(out.data() + at, &value, sizeof value); };
  const auto sum = [&](std::size_t at) {
    const std::span<const std::byte, tcp::kHeaderBytes> head(out.data() + at, tcp::kHeaderBytes);
    put(at + 2, tcp::sum_of(head));
    return tcp::decode(head);
  };
  for (std::size_t at = 0; out.size() - at >= tcp::kHeaderBytes;) {
    if (out[at] == tcp::kPadding) {
      ++at;
      continue;
    }
    const auto header = sum(at);
    if (!header) break;
    const std::span<const std::byte> payload = std::span(out).subspan(at + tcp::kHeaderBytes);
    if (header->payload_bytes() > payload.size()) break;
    if (header->has(tcp::Header::kTable))
      put(at + 16, std::uint64_t{crc32c(0, payload.first(static_cast<std::size_t>(header->table_bytes())))});
    if (header->type >= tcp::FrameType::message && header->type <= tcp::FrameType::compare_swap)
      put(at + 32, crc32c(0, payload.first(static_cast<std::size_t>(header->payload_bytes()))));
    (void)sum(at);
    at += tcp::kHeaderBytes + static_cast<std::size_t>(header->payload_bytes());
  }
  return out;
}

constexpr std::size_t kRegion = 4096;
constexpr std::byte kGuard{0x5a};

}  // namespace

// A lane whose peer says whatever the input says, while slices of every kind wait for answers: no byte outside a region
// with that permission changes, and each slice ends at most once.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  alignas(8) static std::array<std::byte, 7 * kRegion> memory;
  memory.fill(kGuard);
  RegionTable regions(8);
  const auto at = [&](std::size_t i) { return memory.data() + i * kRegion; };
  const auto open = regions.add(at(1), kRegion, MemoryKind::host, Access::all);
  const auto readable = regions.add(at(3), kRegion, MemoryKind::host, Access::read);
  const auto own = regions.add(at(5), kRegion, MemoryKind::host, Access::none);
  if (!open || !readable || !own) std::abort();

  const std::vector<std::byte> says = sealed(std::as_bytes(std::span(data, size)));
  CostCounters counters;
  tcp::Inbox inbox(counters);
  tcp::Lane lane(std::make_unique<Script>(says), {0, 1}, regions, inbox, {});
  const std::uint64_t index[] = {1, 0};
  SliceToken token = 0;
  for (const Op op : {Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap, Op::write_immediate}) {
    Command command;
    command.slice.op = op;
    command.slice.token = token++;
    command.slice.local = at(5);
    command.local_begin = at(5);
    command.local_size = kRegion;
    command.slice.length = op == Op::message ? 100 : 512;
    if (op == Op::read) {
      command.slice.shape = Shape::indexed;
      command.slice.count = 2;
      command.slice.local_index = command.slice.remote_index = index;
      command.slice.local_stride = command.slice.remote_stride = 512;
    }
    command.slice.local_handle = handle_of(*own);
    command.region = {3, 1};
    if (!lane.post(command)) std::abort();
  }
  std::map<SliceToken, int> ended;
  std::array<Event, 16> events;
  const auto poll = [&] {
    inbox.begin_poll();
    while (const std::size_t count = inbox.take(events))
      for (const Event& event : std::span(events).first(count))
        if (event.kind == EventKind::done || event.kind == EventKind::failed)
          if (++ended[event.token] > 1) std::abort();
  };
  for (int turn = 0; turn < 64 && !lane.broken(); ++turn) {
    lane.flush();
    std::uint64_t budget = 1 << 16;
    lane.receive(budget);
    poll();
  }
  lane.close();
  poll();
  if (ended.size() != token) std::abort();
  for (const std::size_t guarded : {0u, 2u, 3u, 4u, 6u})
    if (std::any_of(at(guarded), at(guarded) + kRegion, [](std::byte each) { return each != kGuard; })) std::abort();
  return 0;
}

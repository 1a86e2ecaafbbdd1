#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/crc32c.h"
#include "transport/command.h"
#include "transport/tcp/lane.h"

namespace fairway::transport::tcp {

// Gives what is asked for, of bytes that are all there; takes everything, and notes the bytes of each call.
class Told final : public Channel {
 public:
  explicit Told(std::vector<std::byte> says, std::vector<std::size_t>* calls = nullptr,
                std::vector<std::size_t>* reads = nullptr, std::vector<std::byte>* sent = nullptr)
      : says_(std::move(says)), calls_(calls), reads_(reads), sent_(sent) {}
  Result<std::size_t> send(std::span<const std::byte> bytes) override {
    const std::span<const std::byte> one[] = {bytes};
    return send_pieces(one);
  }
  Result<std::size_t> send_pieces(std::span<const std::span<const std::byte>> pieces) override {
    std::size_t size = 0;
    for (auto piece : pieces) {
      piece = piece.first(std::min(piece.size(), room - size));
      size += piece.size();
      if (sent_ != nullptr) sent_->insert(sent_->end(), piece.begin(), piece.end());
    }
    if (calls_ != nullptr) calls_->push_back(size);
    if (buffers != nullptr) buffers->push_back(pieces.size());
    return size;
  }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    const std::span<std::byte> one[] = {into};
    return receive_pieces(one);
  }
  Result<std::size_t> receive_pieces(std::span<const std::span<std::byte>> pieces) override {
    std::size_t got = 0;
    for (const auto& piece : pieces) got += give(piece.first(std::min(piece.size(), each - got)));
    if (reads_ != nullptr) reads_->push_back(got);
    return got;
  }
  std::string peer_address() const override { return "the test"; }
  bool announced() const override { return more_announced; }
  bool announces_first() const override { return tells_sleepers; }
  bool wake_for_input(bool wanted) override {
    if (wakes != nullptr) *wakes = wanted && !refuses;
    return wanted && !refuses;
  }

  void say(std::span<const std::byte> more) { says_.insert(says_.end(), more.begin(), more.end()); }

  std::size_t room = ~std::size_t{0};  // the most that a call takes
  std::size_t each = ~std::size_t{0};  // or gives
  bool more_announced = false;
  bool tells_sleepers = false;
  std::vector<std::size_t>* buffers = nullptr;  // of each call that sends
  bool refuses = false;                         // to wake anybody
  bool* wakes = nullptr;                        // what the lane last asked for

 private:
  std::size_t give(std::span<std::byte> into) {
    const std::size_t size = std::min(into.size(), says_.size() - at_);
    std::copy_n(says_.begin() + static_cast<std::ptrdiff_t>(at_), size, into.begin());
    at_ += size;
    return size;
  }
  std::vector<std::byte> says_;
  std::vector<std::size_t>*const calls_, *const reads_;
  std::vector<std::byte>* const sent_;
  std::size_t at_ = 0;
};

inline constexpr std::uint64_t kLarge = 64 * 1024, kBlock = 64;

struct Stream {
  std::vector<std::byte> bytes;

  void add(std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
  // A write of one piece, so that the lane expects large frames and reads little along with the next header.
  void add_large(RegionId region) {
    Header header;
    header.region = region;
    header.length = kLarge;
    add(encode(header));
    add(std::vector<std::byte>(kLarge, std::byte{0x11}));
  }
  // Block i, full of i, to place count - 1 - i.
  void add_blocks(RegionId region, std::uint32_t count, std::uint64_t flip = 0) {
    std::vector<std::uint64_t> table(count);
    for (std::uint32_t i = 0; i < count; ++i) table[i] = (count - 1 - i) * kBlock;
    Header header;
    header.flags = Header::kTable;
    header.region = region;
    header.length = kBlock;
    header.count = count;
    header.offset = crc32c(0, std::as_bytes(std::span(table))) ^ flip;
    add(encode(header));
    add(std::as_bytes(std::span(table)));
    for (std::uint32_t i = 0; i < count; ++i) add(std::vector<std::byte>(kBlock, static_cast<std::byte>(i)));
  }
};

struct Reader {
  explicit Reader(std::uint64_t size)
      : memory(size), region(*regions.add(memory.data(), size, MemoryKind::host, Access::all)) {}
  // Whether the lane stands after all of it.
  bool hears(const Stream& stream) {
    Inbox inbox{counters};
    Lane lane(std::make_unique<Told>(stream.bytes, nullptr, &reads), {0, 1}, regions, inbox, {});
    for (int turn = 0; turn < 100 && !lane.broken(); ++turn) {
      std::uint64_t budget = 1 << 20;
      lane.receive(budget);
      lane.flush();
    }
    const bool stands = !lane.broken();
    lane.close();
    return stands;
  }

  [[nodiscard]] std::ptrdiff_t reads_with_bytes() const {
    return std::ranges::count_if(reads, [](std::size_t size) { return size > 0; });
  }

  RegionTable regions{4};
  std::vector<std::byte> memory;
  RegionId region;
  CostCounters counters;
  std::vector<std::size_t> reads;  // bytes of each call
};

}  // namespace fairway::transport::tcp

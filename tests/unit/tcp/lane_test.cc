#include "transport/tcp/lane.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "core/crc32c.h"
#include "transport/handles.h"

namespace fairway::transport::tcp {
namespace {

// Gives what is asked for, of bytes that are all there; takes everything.
class Told final : public Channel {
 public:
  explicit Told(std::vector<std::byte> says) : says_(std::move(says)) {}
  Result<std::size_t> send(std::span<const std::byte> bytes) override { return bytes.size(); }
  Result<std::size_t> receive(std::span<std::byte> into) override {
    const std::size_t size = std::min(into.size(), says_.size() - at_);
    std::memcpy(into.data(), says_.data() + at_, size);
    at_ += size;
    return size;
  }
  std::string peer_address() const override { return "the test"; }

 private:
  const std::vector<std::byte> says_;
  std::size_t at_ = 0;
};

constexpr std::uint64_t kLarge = 64 * 1024, kBlock = 64;

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
    Inbox inbox;
    Lane lane(std::make_unique<Told>(stream.bytes), {0, 1}, regions, inbox, {});
    for (int turn = 0; turn < 100 && !lane.broken(); ++turn) {
      std::uint64_t budget = 1 << 20;
      lane.receive(budget);
      lane.flush();
    }
    const bool stands = !lane.broken();
    lane.close();
    return stands;
  }

  RegionTable regions{4};
  std::vector<std::byte> memory;
  RegionId region;
};

// A table longer than what is read with its header, and pages enough to be received where they belong.
TEST(TcpLane, BlocksLandByATableThatComesInSeveralReads) {
  for (const std::uint32_t count : {300u, 1024u, 5000u}) {
    Reader reader(std::max(kLarge, count * kBlock));
    Stream stream;
    stream.add_large(reader.region);
    stream.add_blocks(reader.region, count);
    ASSERT_TRUE(reader.hears(stream)) << count;
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_EQ(reader.memory[(count - 1 - i) * kBlock + 7], static_cast<std::byte>(i)) << count << ": " << i;
  }
}

TEST(TcpLane, ATableThatWasChangedBreaksTheLaneBeforeABlockLands) {
  Reader reader(kLarge);
  Stream stream;
  stream.add_blocks(reader.region, 1000, 1);
  EXPECT_FALSE(reader.hears(stream));
  EXPECT_TRUE(
      std::all_of(reader.memory.begin(), reader.memory.end(), [](std::byte each) { return each == std::byte{0}; }));
}

}  // namespace
}  // namespace fairway::transport::tcp

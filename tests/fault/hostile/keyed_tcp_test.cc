#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "core/crc32c.h"
#include "scene.h"
#include "seams.h"
#include "transport/tcp/frame.h"

// Attacks by a peer on any host that knows the job's key.
namespace fairway::hostile {
namespace {

using std::chrono::milliseconds;
using namespace transport::tcp;

struct Lanes {
  explicit Lanes(const std::string& address) : met("tcp", address) {
    if (met.why) sockets = lanes(port_of(address));
  }
  Keyed met;
  std::vector<int> sockets;
};

Scene::Attack with_lanes(const std::function<void(Lanes&, RegionId)>& attack) {
  return [attack](ChildProcess::Line& line, const std::string& address) {
    Lanes lanes(address);
    line.write(!lanes.sockets.empty() ? "there" : lanes.met.why.to_string());
    std::istringstream words(line.read());
    RegionId memory;
    words >> memory.slot >> memory.generation;
    attack(lanes, memory);
    for (;;) std::this_thread::sleep_for(milliseconds(100));
  };
}

void all(int fd, const void* bytes, std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  for (std::size_t sent = 0; sent < size;) {
    const ssize_t more = ::send(fd, at + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (more > 0)
      sent += static_cast<std::size_t>(more);
    else if (errno != EAGAIN)
      return;
    else
      std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(KeyedTcp, BytesOfNoSenseCostTheirLaneAlone) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId) {
                const std::vector<unsigned char> ones(4096, 0xff);
                for (const int fd : lanes.sockets) all(fd, ones.data(), ones.size());
              }));
  scene.begin();
  scene.measure_bystander("bytes of no sense on each lane");
  scene.expect_alive();
}

TEST(KeyedTcp, AFrameOfUnknownTypeEndsTheSessionWithTheReason) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId) {
                Header header;
                header.type = static_cast<FrameType>(99);
                const auto bytes = encode(header);
                all(lanes.sockets.front(), bytes.data(), bytes.size());
              }));
  scene.begin();
  EXPECT_TRUE(scene.ends_with_reason("unknown type", milliseconds(10'000)));
  scene.measure_bystander("(after) a frame of unknown type");
  scene.expect_alive();
}

TEST(KeyedTcp, TablesOfAllTheBlocksThatAFrameMayHaveAreBounded) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId memory) {
                never_reads = true;
                Header header;
                header.type = FrameType::read;
                header.flags = Header::kTable;
                header.region = memory;
                header.length = 64;
                header.count = kMaxBlocks;
                const std::vector<std::uint64_t> table(kMaxBlocks, 0);
                header.offset = crc32c(0, std::as_bytes(std::span(table)));
                for (header.token = 0; header.token < kQueueDepth; ++header.token) {
                  const auto bytes = encode(header);
                  all(lanes.sockets.front(), bytes.data(), bytes.size());
                  all(lanes.sockets.front(), table.data(), table.size() * 8);
                }
              }));
  scene.begin();
  scene.measure_bystander("reads of 2^17 blocks each, never read", 1500);
  EXPECT_TRUE(scene.ends_with_reason("more blocks than the protocol allows", milliseconds(10'000)));
  scene.expect_alive();
}

TEST(KeyedTcp, WhoReadsNothingOfWhatItAskedForCostsNoMemory) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId memory) {
                Header header;
                header.type = FrameType::read;
                header.region = memory;
                header.length = kBytes;
                for (const int fd : lanes.sockets)
                  for (header.token = 0; header.token < kQueueDepth; ++header.token) {
                    const auto bytes = encode(header);
                    all(fd, bytes.data(), bytes.size());
                  }
              }));
  scene.begin();
  scene.measure_bystander("asks for 64 MiB on each lane, never reads");
  scene.expect_alive();
}

TEST(KeyedTcp, AFrameThatIsBegunAndNotEndedCostsNothing) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId memory) {
                Header header;
                header.type = FrameType::write;
                header.region = memory;
                header.length = kBytes;
                const auto bytes = encode(header);
                for (const int fd : lanes.sockets) all(fd, bytes.data(), bytes.size());
              }));
  scene.begin();
  scene.measure_bystander("a frame that is begun and not ended");
  scene.expect_alive();
}

TEST(KeyedTcp, MoreRequestsThanMayBeUnansweredEndTheSession) {
  Scene scene("tcp", with_lanes([](Lanes& lanes, RegionId memory) {
                never_reads = true;
                Header header;
                header.type = FrameType::read;
                header.region = memory;
                header.length = kBytes;
                for (header.token = 0; header.token < 100'000; ++header.token) {
                  const auto bytes = encode(header);
                  all(lanes.sockets.front(), bytes.data(), bytes.size());
                }
              }));
  scene.begin();
  EXPECT_TRUE(scene.ends_with_reason("more requests in flight than the protocol allows", milliseconds(10'000)));
  scene.measure_bystander("(after) more requests at once than it may");
  scene.expect_alive();
}

}  // namespace
}  // namespace fairway::hostile

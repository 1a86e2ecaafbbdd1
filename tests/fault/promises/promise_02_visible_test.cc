// Promise 2, visible: ok means that every byte is visible to the owner of the memory, and that the notification came
// exactly once and after all bytes, however the transfer was striped and reordered. After an error it comes at most
// once, and never early. Cases: striped writes over NICs that reorder, lose, refuse and break. The bytes are checked
// the moment the notification is seen, and every count is compared with the completions.
#include <array>
#include <atomic>
#include <map>
#include <vector>

#include "cluster.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

constexpr std::size_t kSlots = 8;
constexpr std::size_t kStamped = Cluster::kBytes / kSlots;

NicDevice rough(std::uint64_t rate) {
  NicDevice device = nic(rate);
  device.nature.lose_per_mille = 50;
  device.nature.latency_max = 300 * kMicrosecond;
  device.device.capabilities.max_slice_bytes = 1024;
  return device;
}

struct Write {
  TransferId id;
  std::uint8_t stamp = 0;
  std::size_t slot = 0;
  int notified = 0;
  bool done = false;
  Status status;
};

void fill(Cluster::Node& node, std::size_t slot, std::uint8_t stamp) {
  std::memset(node.data() + slot * kStamped, stamp, kStamped);
}
bool holds(Cluster::Node& node, std::size_t slot, std::uint8_t stamp) {
  const std::uint8_t* at = node.data() + slot * kStamped;
  return *at == stamp && std::memcmp(at, at + 1, kStamped - 1) == 0;
}

// Rounds of striped writes, one per part of the memory, each with an event that identifies it.
void notify_under_faults(std::uint64_t seed, bool breaks, bool lowered) {
  Cluster cluster(seed);
  std::vector<NicDevice> nics{rough(1'000'000'000), rough(3'000'000'000)};
  if (lowered) {
    nics[0] = message_nic();
    nics[1] = message_nic();
  }
  nics[1].device.capabilities.ordered = false;
  nics[1].device.capabilities.visible_when_done = false;  // needs a flush
  auto& a = cluster.add(nics);
  auto& b = cluster.add(nics);
  const auto road = cluster.connect(a, b);
  std::map<std::uint32_t, Write> writes;
  const auto look = [&] {
    std::array<Notification, 4> got;
    for (std::size_t count = b.engine->poll_notifications(got); count > 0; count = b.engine->poll_notifications(got))
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(writes.contains(got[i].immediate));
        Write& write = writes[got[i].immediate];
        ASSERT_EQ(++write.notified, 1) << "notified twice";
        ASSERT_TRUE(holds(b, write.slot, write.stamp)) << "notified before its bytes were there";
      }
  };
  std::uint32_t next = 1;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::uint32_t> mine;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      Write& write = writes[next];
      write.slot = slot;
      write.stamp = static_cast<std::uint8_t>(next);
      fill(a, slot, write.stamp);
      RequestOptions options;
      options.notify = notify_event(next);
      options.checksum = slot == 3;
      const auto id =
          a.engine->write(road.peer, Cluster::extent(a, road, slot * kStamped, slot * kStamped, kStamped), options);
      ASSERT_TRUE(id) << id.status().to_string();
      write.id = *id;
      mine.push_back(next++);
    }
    if (breaks) {
      cluster.run(seed % 5 * 100 * kMicrosecond);
      cluster.fabric().break_device(*a.host, static_cast<std::size_t>(round) % 2, kMillisecond);
    }
    const auto all_done = [&] {
      for (const std::uint32_t number : mine) {
        Write& write = writes[number];
        if (write.done) continue;
        const auto completion = a.engine->wait(write.id, Timeout(0));
        if (!completion) continue;
        write.done = true;
        write.status = completion->status;
        look();
        if (write.status) {
          EXPECT_TRUE(holds(b, write.slot, write.stamp));
        }
      }
      for (const std::uint32_t number : mine)
        if (!writes[number].done) return false;
      return true;
    };
    for (int turns = 0; turns < 40'000 && !all_done(); ++turns) {
      cluster.run(50 * kMicrosecond);
      look();
    }
    ASSERT_TRUE(all_done());
    cluster.run(10 *
                kMillisecond);  // delivered to the peer's engine; its worker still has to put it into the user's queue
    look();
    for (const std::uint32_t number : mine) {
      EXPECT_TRUE(writes[number].status) << writes[number].status.to_string();
      EXPECT_EQ(writes[number].notified, 1);
    }
  }
  cluster.run(kSecond);
  look();
}

TEST(Visible, ANotificationComesOnceAndAfterAllBytesHoweverStriped) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    notify_under_faults(seed, false, false);
  }
}
TEST(Visible, BrokenLinksNeitherLoseNorRepeatNorHurryANotification) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    notify_under_faults(seed, true, false);
  }
}
TEST(Visible, WritesByMessagesAreNoDifferent) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    notify_under_faults(seed, seed % 2 == 0, true);
  }
}

// Counters travel with the write as native immediates where the NIC supports them. A NIC that accepts only part of a
// post, and links that break, must not change the count.
TEST(Visible, CountersCountEachWriteOnceThoughImmediatesAreRefusedAndLinksBreak) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    NicDevice device = nic();
    device.nature.partial_post_per_mille = 600;
    device.nature.latency_max = 200 * kMicrosecond;
    EngineOptions options;
    options.prove_paths = false;
    auto& a = cluster.add({device, device}, options);
    auto& b = cluster.add({device, device}, options);
    const auto road = cluster.connect(a, b);
    RequestOptions counted;
    counted.notify = notify_counter(9);
    std::uint64_t ok = 0, failed = 0;
    for (int round = 0; round < 5; ++round) {
      std::vector<TransferId> ids;
      for (int i = 0; i < 40; ++i)
        ids.push_back(*a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 32), counted));
      cluster.run((seed * 13 + static_cast<std::uint64_t>(round) * 29) % 200 * kMicrosecond);
      cluster.fabric().break_device(*a.host, static_cast<std::size_t>(round) % 2, 500 * kMicrosecond);
      for (const TransferId id : ids) (cluster.finish(a, id).status ? ok : failed) += 1;
      cluster.run(10 * kMillisecond);
      EXPECT_GE(b.engine->counter(9), ok);
      EXPECT_LE(b.engine->counter(9), ok + failed);
    }
    EXPECT_EQ(failed, 0u);
  }
}

TEST(Visible, ACounterThatIsSeenHasItsBytesThere) {
  Pair pair;
  RequestOptions options;
  options.notify = notify_counter(3);
  for (std::uint64_t round = 1; round <= 500; ++round) {
    const std::size_t words = round % 3 == 0 ? 65536 : 16;  // the large ones are striped
    pair.left.words()[0] = pair.left.words()[words - 1] = round;
    const auto id = pair.left.engine().write(pair.to_right, pair.extent(0, 0, words * 8), options);
    ASSERT_TRUE(pair.right.engine().wait_counter(3, round, kSoon));
    EXPECT_EQ(pair.right.words()[0], round);
    EXPECT_EQ(pair.right.words()[words - 1], round);
    EXPECT_TRUE(finish(pair.left.engine(), id).status);
  }
}

TEST(Visible, AFailedWriteDoesNotNotify) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  const std::uint64_t near_index[] = {0, 1}, far_index[] = {0, Cluster::kBytes};
  RequestOptions options;
  options.notify = notify_event(1);
  const Paged pages{a.region.id, road.memory.id, 64, 64, 1, near_index, far_index};
  EXPECT_FALSE(cluster.finish(a, a.engine->write(road.peer, pages, options)).status);
  options.notify.kind = NotifyKind::counter;
  EXPECT_FALSE(cluster.finish(a, a.engine->write(road.peer, pages, options)).status);
  cluster.run(kSecond);
  std::array<Notification, 2> got;
  EXPECT_EQ(b.engine->poll_notifications(got), 0u);
  EXPECT_EQ(b.engine->counter(1), 0u);
}

}  // namespace
}  // namespace fairway::promises

// Promise 4, in bounds: whatever arrives in a frame or a descriptor, no byte is touched outside a region registered
// with that permission. Bad input ends that peer's connection with a reason, never the process. Cases: a peer that
// knows the job's key and lies in every field of every record and control message; descriptors that promise more than
// there is; requests of the local user beyond the end.
#include <functional>
#include <string>
#include <vector>

#include "cluster.h"
#include "core/bytes.h"
#include "engine/messages/notifier.h"
#include "engine/tables/record.h"
#include "engine/tables/regions.h"
#include "fuzz/engine/victim.h"

namespace fairway::promises {
namespace {

using engine::RecordType;
using hostile::Victim;

using Bytes = std::vector<std::byte>;

// A record of each type as an honest peer could send it to this victim now, without its number.
std::vector<std::pair<std::string, Bytes>> honest_records(const Victim& victim) {
  std::vector<std::pair<std::string, Bytes>> records;
  const auto make = [&](const char* name, RecordType type, const std::function<void(ByteWriter&)>& body) {
    Bytes bytes(600);
    ByteWriter writer(bytes);
    writer.put(static_cast<std::uint8_t>(type));
    body(writer);
    bytes.resize(writer.size());
    records.emplace_back(name, bytes);
  };
  const auto region = [](ByteWriter& writer, const Region& target) {
    writer.put(std::uint32_t{3}).put(std::uint32_t{77}).put(target.id.slot).put(target.id.generation);
  };
  const auto transfer = [](ByteWriter& writer, TransferId id) { writer.put(id.slot).put(id.generation); };
  const Bytes data(100, std::byte{0x11});
  make("event", RecordType::event, [&](auto& w) { w.put(std::uint32_t{7}).put_bytes(data); });
  make("counter", RecordType::counter, [&](auto& w) { w.put(std::uint32_t{7}); });
  make("credit", RecordType::credit, [&](auto& w) { w.put(std::uint32_t{1}); });
  make("send_eager", RecordType::send_eager, [&](auto& w) {
    w.put(std::uint32_t{0}).put(std::uint64_t{1});
    transfer(w, {9, 9});
    w.put_bytes(data);
  });
  make("send_announce", RecordType::send_announce, [&](auto& w) {
    w.put(std::uint32_t{1}).put(std::uint64_t{2});
    transfer(w, {9, 9});
    w.put(std::uint64_t{1500});
  });
  make("send_clear", RecordType::send_clear, [&](auto& w) {
    transfer(w, victim.transfer(5));
    transfer(w, {9, 9});
    engine::Description window;
    window.region = {8, 1};
    window.size_bytes = 1700;
    window.access = Access::write;
    w.put_sized(engine::format_description(window));
  });
  make("send_written", RecordType::send_written, [&](auto& w) {
    transfer(w, victim.transfer(7));
    w.put(std::uint64_t{1500});
  });
  make("send_abort", RecordType::send_abort, [&](auto& w) {
    transfer(w, victim.transfer(7));
    w.put(std::uint8_t{3});
  });
  make("send_done", RecordType::send_done, [&](auto& w) {
    transfer(w, victim.transfer(4));
    w.put(std::uint8_t{0}).put(std::uint32_t{64 + 64});
  });
  make("put", RecordType::put, [&](auto& w) {
    region(w, victim.writable());
    w.put(std::uint64_t{Victim::kRegion - 100}).put_bytes(data);
  });
  make("get", RecordType::get, [&](auto& w) {
    region(w, victim.readable());
    w.put(std::uint64_t{Victim::kRegion - 100}).put(std::uint32_t{100});
  });
  make("atomic", RecordType::atomic, [&](auto& w) {
    region(w, victim.writable());
    w.put(std::uint64_t{Victim::kRegion - 8}).put(std::uint8_t{0}).put(std::uint64_t{5}).put(std::uint64_t{0});
  });
  make("sum", RecordType::sum, [&](auto& w) {
    region(w, victim.readable());
    w.put(std::uint64_t{0}).put(std::uint64_t{Victim::kRegion});
  });
  make("flush", RecordType::flush, [&](auto& w) { region(w, victim.writable()); });
  for (const std::uint32_t token : {0u, 1u, 2u})  // one of them is the victim's own request
    make("reply", RecordType::reply,
         [&](auto& w) { w.put(token).put(token + 1).put(std::uint8_t{0}).put(std::uint64_t{1}).put_bytes(data); });
  // Numbered by position without `credit`: the second triggers the first, the fourth abandons the third.
  const auto number = [&](int back) { return static_cast<std::uint32_t>(records.size()) - 1 - back; };
  make("event_armed", RecordType::event_armed, [&](auto& w) { w.put(std::uint32_t{8}).put_bytes(data); });
  make("event_set_off", RecordType::event_set_off, [&](auto& w) { w.put(number(1)); });
  make("event_armed", RecordType::event_armed, [&](auto& w) { w.put(std::uint32_t{8}); });
  make("event_given_up", RecordType::event_given_up, [&](auto& w) { w.put(number(1)); });
  make("stage_ask", RecordType::stage_ask, [&](auto& w) { w.put(std::uint32_t{1}); });
  make("stage_recall", RecordType::stage_recall, [&](auto& w) { w.put(std::uint32_t{1}); });  // may come late
  make("echo", RecordType::echo, [&](auto& w) { w.put(std::uint8_t{0}).put_bytes(Bytes(64)); });
  make("echo_reply", RecordType::echo_reply, [&](auto& w) { w.put_bytes(Bytes(64)); });
  return records;
}

void say(Victim& victim, std::span<const std::byte> without_number, std::uint32_t number) {
  Bytes record(4 + without_number.size());
  ByteWriter(record).put(number).put_bytes(without_number);
  victim.record(record);
}

TEST(InBounds, EveryHonestRecordIsUnderstood) {
  for (const bool with_writes : {true, false}) {
    Victim victim({true, with_writes, true, true});
    ASSERT_EQ(victim.started(), 9u);
    std::uint32_t number = 0;
    for (const auto& [name, bytes] : honest_records(victim)) {
      if (name == "credit") continue;  // honest only after an event of the victim
      say(victim, bytes, number++);
      ASSERT_TRUE(victim.up()) << name << ": " << victim.down().to_string();
      ASSERT_EQ(victim.broken(), "") << name;
    }
    EXPECT_EQ(std::to_integer<int>(victim.memory()[2 * Victim::kRegion - 100]), 0x11);
    EXPECT_EQ(victim.engine().counter(7), 1u);
    EXPECT_EQ(victim.close(), "");
  }
}

TEST(InBounds, ALieInAnyByteOfAnyRecordTouchesNothingAndEndsNothingTwice) {
  std::size_t lies = 0, ended = 0;
  for (const bool with_writes : {true, false}) {
    const Victim first({true, with_writes, true, true});
    const auto records = honest_records(first);
    for (std::size_t r = 0; r < records.size(); ++r)
      for (std::size_t at = 0; at < std::min<std::size_t>(records[r].second.size(), 40); ++at) {
        Victim victim({true, with_writes, true, true});
        std::uint32_t number = 0;
        for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
          Bytes lie = honest_records(victim)[r].second;
          lie[at] = static_cast<std::byte>(value);
          say(victim, lie, number++);
          ++lies;
          ASSERT_EQ(victim.broken(), "") << records[r].first << " byte " << at << " = " << value;
        }
        ended += !victim.up();
        ASSERT_EQ(victim.close(), "") << records[r].first << " byte " << at;
      }
  }
  EXPECT_GT(lies, 4000u);
  EXPECT_GT(ended, 100u) << "lies that can be told from the truth end the session";
}

TEST(InBounds, EveryTruncatedOrLongerRecordTouchesNothing) {
  const Victim first;
  const auto records = honest_records(first);
  for (std::size_t r = 0; r < records.size(); ++r)
    for (std::size_t length = 0; length <= records[r].second.size() + 3; length += length < 24 ? 1 : 19) {
      Victim victim({true, r % 2 == 0, true, true});
      Bytes cut = honest_records(victim)[r].second;
      cut.resize(length);
      say(victim, cut, 0);
      ASSERT_EQ(victim.close(), "") << records[r].first << " of " << length << " bytes";
    }
}

TEST(InBounds, ALieInAnyByteOfAnyControlMessageTouchesNothing) {
  for (std::size_t kind = 0; kind < 4; ++kind) {
    const auto honest = [&](const Victim& victim) -> Bytes {
      switch (kind) {
        case 0: return format(victim.honest_hello());
        case 1: return format(engine::Exchange{"loopback", {}});
        case 2: return format(engine::LinkClosed{"loopback", 1, 0});
        default: return format(engine::Lookup{1, "memory"});
      }
    };
    const std::size_t size = honest(Victim()).size();
    for (std::size_t at = 0; at < size; ++at) {
      Victim victim({kind % 2 == 0, true, kind != 0, kind != 0});
      for (const int value : {0x00, 0x02, 0xff}) {
        Bytes lie = honest(victim);
        lie[at] = static_cast<std::byte>(value);
        victim.message(lie);
      }
      ASSERT_EQ(victim.close(), "") << "kind " << kind << " byte " << at;
    }
  }
}

TEST(InBounds, FloodsAreEndedNotStored) {
  const auto flood = [](const char* what, const std::function<void(Victim&, std::uint32_t)>& one) {
    Victim victim({true, true, true, false});
    for (std::uint32_t i = 0; i < 600 && victim.up(); ++i) one(victim, i);
    EXPECT_FALSE(victim.up()) << what;
    EXPECT_EQ(victim.close(), "") << what;
  };
  const auto record = [](RecordType type, std::uint64_t a, std::uint64_t b = 0) {
    Bytes bytes(1 + 8 + 8);
    ByteWriter(bytes).put(static_cast<std::uint8_t>(type)).put(a).put(b);
    return bytes;
  };
  flood("events beyond the credits",
        [&](Victim& victim, std::uint32_t i) { say(victim, record(RecordType::event, i), i); });
  flood("armed events beyond the credits",
        [&](Victim& victim, std::uint32_t i) { say(victim, record(RecordType::event_armed, i), i); });
  flood("immediates of events beyond the credits", [&](Victim& victim, std::uint32_t i) {
    victim.event(transport::EventKind::immediate, engine::kEventBit | (1000 + i));
  });
  flood("immediates of events beyond the window", [&](Victim& victim, std::uint32_t i) {
    victim.event(transport::EventKind::immediate, engine::kEventBit | (100'000 + i));
  });
  flood("counters beyond the table", [&](Victim& victim, std::uint32_t i) {
    Bytes bytes(5);
    ByteWriter(bytes).put(static_cast<std::uint8_t>(RecordType::counter)).put(i);
    say(victim, bytes, i);
  });
  flood("immediates beyond the table",
        [&](Victim& victim, std::uint32_t i) { victim.event(transport::EventKind::immediate, i); });
  flood("unexpected messages beyond the room", [&](Victim& victim, std::uint32_t i) {
    Bytes bytes(1 + 4 + 8 + 8 + 200);
    ByteWriter(bytes).put(static_cast<std::uint8_t>(RecordType::send_eager)).put(i).put(std::uint64_t{5});
    say(victim, bytes, i);
  });
  flood("ends of links that never were", [&](Victim& victim, std::uint32_t i) {
    victim.message(format(engine::LinkClosed{"loopback", 1000 + i, 0}));
  });
}

TEST(InBounds, WhatBelongsToNoRoomEndsTheSession) {
  for (const RecordType type : {RecordType::stage_grant, RecordType::stage_end, RecordType::stage_put,
                                RecordType::stage_get, RecordType::stage_done}) {
    Victim victim({true, true, true, true});
    const Region target = victim.writable();
    Bytes bytes(1 + 4 + 1 + 8 + 2 + 12);
    ByteWriter(bytes)
        .put(static_cast<std::uint8_t>(type))
        .put(std::uint32_t{0})
        .put(std::uint8_t{0})
        .put(target.id.slot)
        .put(target.id.generation)
        .put(std::uint16_t{1})
        .put(std::uint64_t{0})
        .put(std::uint32_t{8});
    say(victim, bytes, 0);
    EXPECT_FALSE(victim.up()) << static_cast<int>(type);
    EXPECT_EQ(victim.close(), "");
  }
}

TEST(InBounds, AnAbortThatSaysOkIsNoSuccess) {
  Victim victim({true, true, true, true});
  Bytes announce(1 + 4 + 8 + 8 + 8), abort(1 + 8 + 1);
  ByteWriter(announce)
      .put(static_cast<std::uint8_t>(RecordType::send_announce))
      .put(std::uint32_t{0})
      .put(std::uint64_t{2})
      .put(std::uint64_t{9})
      .put(std::uint64_t{1500});
  const TransferId receive = victim.transfer(7);
  ByteWriter(abort)
      .put(static_cast<std::uint8_t>(RecordType::send_abort))
      .put(receive.slot)
      .put(receive.generation)
      .put(std::uint8_t{0});
  say(victim, announce, 0);
  say(victim, abort, 1);
  EXPECT_FALSE(victim.up());
  EXPECT_EQ(victim.close(), "");
}

// Many of our own records that wait for a slow link are not the peer's fault.
TEST(InBounds, AnHonestPeerIsNotTakenForAFlood) {
  Cluster cluster;
  NicDevice fast = nic(), slow = message_nic();
  fast.device.capabilities.operations = mask(transport::Op::write, transport::Op::read);
  slow.device.capabilities.queue_depth = 1;
  slow.nature.latency_min = slow.nature.latency_max = 500 * kMicrosecond;
  EngineOptions options;
  options.max_transfers = 1024;
  auto& a = cluster.add({fast, slow}, options);
  auto& b = cluster.add({fast, slow}, options);
  const auto there = cluster.connect(a, b);
  const auto back = cluster.connect(b, a);
  RequestOptions counted, checked;
  counted.notify = notify_counter(1);
  checked.checksum = true;
  std::vector<TransferId> ids;
  for (int i = 0; i < 600; ++i)
    ids.push_back(*a.engine->write(there.peer, Cluster::extent(a, there, 0, 0, 8), counted));
  cluster.run(20 * kMillisecond);
  EXPECT_TRUE(cluster.finish(b, b.engine->write(back.peer, Cluster::extent(b, back, 0, 64, 8), checked)).status);
  for (const TransferId id : ids) {
    const Completion done = cluster.finish(a, id);
    ASSERT_TRUE(done.status) << done.status.to_string();
  }
  cluster.run(10 * kMillisecond);
  EXPECT_EQ(b.engine->counter(1), 600u);
}

TEST(InBounds, ADescriptorThatPromisesMoreIsRefusedAtTheTarget) {
  for (const bool messages : {false, true}) {
    Cluster cluster;
    const NicDevice device = messages ? message_nic() : nic();
    auto& a = cluster.add({device});
    auto& b = cluster.add({device});
    const auto road = cluster.connect(a, b);
    std::vector<std::uint64_t> guarded(3 * 512, 0x5a5a5a5a5a5a5a5a);
    const auto small = b.engine->register_memory(guarded.data() + 512, 4096, Access::read);
    ASSERT_TRUE(small);
    auto lie = *engine::parse_description(*b.engine->describe(*small));
    lie.size_bytes = 1 << 30;
    lie.access = Access::all;
    const auto remote = a.engine->import_region(road.peer, engine::format_description(lie));
    ASSERT_TRUE(remote);
    const auto at = [&](std::uint64_t offset, std::uint64_t length) {
      return Extent{{a.region.id, 0, length}, {remote->id, offset}};
    };
    std::memset(a.data(), 0xee, Cluster::kBytes);
    for (const std::uint64_t offset :
         {std::uint64_t{0}, std::uint64_t{4000}, std::uint64_t{4096}, std::uint64_t{1} << 29}) {
      EXPECT_FALSE(cluster.finish(a, a.engine->write(road.peer, at(offset, 200))).status);
      if (offset != 0) {
        EXPECT_FALSE(cluster.finish(a, a.engine->read(road.peer, at(offset, 200))).status);
      }
      EXPECT_FALSE(cluster.finish(a, a.engine->fetch_add(road.peer, {remote->id, offset}, 1)).status);
    }
    for (std::size_t i = 0; i < Cluster::kBytes; ++i) ASSERT_EQ(a.data()[i], 0xee) << i;
    EXPECT_TRUE(cluster.finish(a, a.engine->read(road.peer, at(0, 200))).status);
    EXPECT_EQ(a.data()[0], 0x5a);
    for (const std::uint64_t word : guarded) ASSERT_EQ(word, 0x5a5a5a5a5a5a5a5au);
  }
}

}  // namespace
}  // namespace fairway::promises

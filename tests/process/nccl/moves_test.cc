#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"

// The plugin between processes, played by NCCL's rules: everything polls, nothing blocks, every byte is compared.
namespace fairway::nccl {
namespace {

constexpr std::size_t kSlots = abi::kMostRequests, kSlotBytes = 96 * 1024;

// As many messages as there are `messages`, of every size, from each rank to the next one, up to 32 at a time.
void ring(Board& board, int number, int count, int version, int messages) {
  Rank rank(board, number, count, version);
  rank.meet((number + 1) % count, (number + count - 1) % count);
  std::vector<std::byte> out(kSlots * kSlotBytes), in(kSlots * kSlotBytes);
  void* from = rank.register_memory(rank.sender, out.data(), out.size());
  void* into = rank.register_memory(rank.receiver, in.data(), in.size());
  const auto size_of = [](int sender, int message) -> std::size_t {
    std::minstd_rand random(static_cast<unsigned>(sender * 7919 + message + 1));
    random.discard(3);
    switch (random() % 4) {
      case 0: return random() % 16;
      case 1: return random() % 5000;
      default: return random() % (kSlotBytes + 1);
    }
  };
  const auto seed_of = [](int sender, int message) { return static_cast<std::uint64_t>(sender * 1000 + message); };
  const int previous = (number + count - 1) % count;
  std::array<void*, kSlots> sends{}, receives{};
  int sent = 0, sends_done = 0, posted = 0, received = 0;
  rank.until("the ring", [&] {
    if (posted < messages && posted < received + static_cast<int>(kSlots)) {
      void* data = in.data() + posted % kSlots * kSlotBytes;
      std::size_t size = kSlotBytes;
      int tag = previous;
      void* request = posted % 3 == 0 ? reinterpret_cast<void*>(abi::kOptionalCompletion) : nullptr;
      rank.must(rank.table->receive(rank.receiver, 1, &data, &size, &tag, &into, &request), "irecv");
      if (request != nullptr) receives[posted++ % kSlots] = request;
    }
    if (sent < messages && sent < sends_done + static_cast<int>(kSlots)) {
      std::byte* data = out.data() + sent % kSlots * kSlotBytes;
      const std::size_t size = size_of(number, sent);
      fill(data, size, seed_of(number, sent));
      void* request = nullptr;
      rank.must(rank.table->send(rank.sender, data, size, number, from, &request), "isend");
      if (request != nullptr) sends[sent++ % kSlots] = request;
    }
    int done = 0, size = -1;
    if (sends_done < sent) {
      rank.must(rank.table->test(sends[sends_done % kSlots], &done, &size), "test");
      if (done != 0 && static_cast<std::size_t>(size) != size_of(number, sends_done++)) throw Failure("a sent size");
    }
    if (received < posted) {
      rank.must(rank.table->test(receives[received % kSlots], &done, &size), "test");
      if (done != 0) {
        if (static_cast<std::size_t>(size) != size_of(previous, received)) throw Failure("a received size");
        void* flushed = &done;
        rank.must(rank.table->flush(rank.receiver, in.data(), 1, into, &flushed), "iflush");
        if (flushed != nullptr) rank.finish(flushed);
        compare(in.data() + received % kSlots * kSlotBytes, size_of(previous, received), seed_of(previous, received));
        ++received;
      }
    }
    return sends_done == messages && received == messages;
  });
  rank.must(rank.table->deregister(rank.sender, from), "deregMr");
  rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
  rank.leave();
}

struct Way {
  int version;
  const char* transport;
};
class NcclMoves : public testing::TestWithParam<Way> {
 protected:
  NcclMoves() {
    ::setenv("FAIRWAY_TRANSPORTS", GetParam().transport, 1);
    ::setenv("FAIRWAY_GPU_MEMORY", "off", 1);
  }
};

TEST_P(NcclMoves, EverySizeAroundARingOfTwo) {
  Ranks ranks(2, [](Board& board, int rank) { ring(board, rank, 2, GetParam().version, 200); });
  EXPECT_EQ(ranks.outcomes(), "");
}

// Receives in groups: each send finds the receive of its tag, in order for each tag, and each size comes back.
void grouped(Board& board, int number, int version) {
  Rank rank(board, number, 2, version);
  rank.meet(1 - number, 1 - number);
  constexpr int kGroups = 12, kTags = abi::kMostReceives;
  constexpr std::size_t kEach = 4096;
  std::vector<std::byte> out(kGroups * kTags * kEach), in(out.size());
  void* from = rank.register_memory(rank.sender, out.data(), out.size());
  void* into = rank.register_memory(rank.receiver, in.data(), in.size());
  const auto members = [](int group) { return 1 + (group * 5 + 2) % kTags; };
  const auto bytes = [](int group, int tag) { return static_cast<std::size_t>((group * 977 + tag * 131) % 4096); };
  std::vector<void*> requests;
  for (int group = 0; group < kGroups; ++group) {
    void* data[kTags];
    void* memory[kTags];
    std::size_t sizes[kTags];
    int tags[kTags];
    for (int i = 0; i < members(group); ++i) {
      tags[i] = (i + group) % members(group);
      data[i] = in.data() + (static_cast<std::size_t>(group * kTags + tags[i])) * kEach;
      sizes[i] = kEach;
      memory[i] = into;
    }
    void* request = nullptr;
    rank.until("irecv", [&] {
      rank.must(rank.table->receive(rank.receiver, members(group), data, sizes, tags, memory, &request), "irecv");
      return request != nullptr;
    });
    requests.push_back(request);
  }
  std::vector<void*> sends;
  for (int group = 0; group < kGroups; ++group)
    for (int tag = members(group) - 1; tag >= 0; --tag) {
      if (sends.size() == kSlots) {
        for (void* request : sends) rank.finish(request);
        sends.clear();
      }
      std::byte* data = out.data() + static_cast<std::size_t>(group * kTags + tag) * kEach;
      fill(data, bytes(group, tag), static_cast<std::uint64_t>(group * kTags + tag));
      sends.push_back(rank.send(data, bytes(group, tag), tag, from));
    }
  for (void* request : sends) rank.finish(request);
  for (int group = 0; group < kGroups; ++group) {
    int done = 0, sizes[kTags] = {};
    rank.until("a group", [&] {
      rank.must(rank.table->test(requests[static_cast<std::size_t>(group)], &done, sizes), "test");
      return done != 0;
    });
    for (int i = 0; i < members(group); ++i) {
      const int tag = (i + group) % members(group);
      if (static_cast<std::size_t>(sizes[i]) != bytes(group, tag)) throw Failure("a size in a group");
      compare(in.data() + static_cast<std::size_t>(group * kTags + tag) * kEach, bytes(group, tag),
              static_cast<std::uint64_t>(group * kTags + tag));
    }
  }
  rank.barrier(0);
  rank.leave();
}

TEST_P(NcclMoves, AGroupsSendsFindTheirTags) {
  Ranks ranks(2, [](Board& board, int rank) { grouped(board, rank, GetParam().version); });
  EXPECT_EQ(ranks.outcomes(), "");
}

INSTANTIATE_TEST_SUITE_P(Over, NcclMoves,
                         testing::Values(Way{8, "shm"}, Way{9, "shm"}, Way{10, "shm"}, Way{11, "shm"}, Way{12, "shm"},
                                         Way{8, "tcp"}, Way{11, "tcp"}, Way{12, "tcp"}),
                         [](const auto& row) {
                           return std::string(row.param.transport) + "V" + std::to_string(row.param.version);
                         });

TEST(NcclRing, HasEightProcesses) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  Ranks ranks(8, [](Board& board, int rank) { ring(board, rank, 8, 12, 60); });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST(NcclRing, HasOneProcessToo) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  Ranks ranks(1, [](Board& board, int rank) { ring(board, rank, 1, 12, 100); });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl

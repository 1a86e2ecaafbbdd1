#include <array>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/ring.h"

// The plugin between processes, played by NCCL's rules: everything polls, nothing blocks, every byte is compared.
namespace fairway::nccl {
namespace {

struct Way {
  int version;
  const char* transport;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << "v" << way.version << " over " << way.transport;
}
class NcclMoves : public testing::TestWithParam<Way> {
 protected:
  NcclMoves() {
    ::setenv("FAIRWAY_TRANSPORTS", GetParam().transport, 1);
    ::setenv("FAIRWAY_GPU_MEMORY", "off", 1);
  }
};

TEST_P(NcclMoves, EverySizeAroundARingOfTwo) {
  Ranks ranks(2, [](Board& board, int rank) { ring(board, rank, 2, GetParam().version, 120); });
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
                                         Way{8, "tcp"}, Way{12, "tcp"}),
                         [](const auto& row) {
                           return std::string(row.param.transport) + "V" + std::to_string(row.param.version);
                         });

TEST(NcclRing, HasEightProcesses) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  Ranks ranks(8, [](Board& board, int rank) { ring(board, rank, 8, 12, 60); });
  EXPECT_EQ(ranks.outcomes(), "");
}

// Connections are dealt to engines by who listens, so ranks need not have as many of them.
TEST(NcclRing, MayHaveOtherNumbersOfEngines) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  Ranks ranks(3, [](Board& board, int rank) {
    ::setenv("FAIRWAY_ENGINES", std::to_string(1 + rank).c_str(), 1);
    ring(board, rank, 3, 12, 60);
    const std::size_t start = said().find(" listens on ");
    const std::string listens = said().substr(start, said().find('\n', start) - start);
    std::size_t engines = 1;
    for (std::size_t at = 0; (at = listens.find(" and 127.", at)) != std::string::npos; ++at) ++engines;
    if (engines != static_cast<std::size_t>(1 + rank)) throw Failure("not so many engines: " + listens);
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST(NcclRing, HasOneProcessToo) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  Ranks ranks(1, [](Board& board, int rank) { ring(board, rank, 1, 12, 100); });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl

#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"
#include "support/cuda/device_memory.h"
#include "support/sanitized.h"

// Communicators that are made, used, closed in flight and aborted, some at once in each process, as one seed says.
// Every byte that arrives is compared, and after deregMr none may. Longer, or again from a round that failed:
//   FAIRWAY_SOAK_SECONDS=480 FAIRWAY_SOAK_SEED=7 FAIRWAY_SOAK_FROM=120 process_nccl --gtest_filter='*NcclSoak*'
namespace fairway::nccl {
namespace {

using support::DeviceMemory;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3, kLanes = 2;  // lane: a thread in each process with one communicator after the other
constexpr int kParts = 4;              // of a group, at most
constexpr std::size_t kEach = 256 * 1024, kGroups = 8, kSends = 8;  // bytes; on their way
constexpr std::size_t kBuffer = kGroups * kParts * kEach;

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* set = std::getenv(variable);
  return set == nullptr ? otherwise : std::strtoull(set, nullptr, 10);
}

// What a bootstrap carries between the processes; of each lane.
struct Meeting {
  std::atomic<std::uint64_t> met, arrived, last;
  std::atomic<std::uint64_t> there[kRanks];  // round + 1
  HandleBytes handles[kRanks];
};

// What all ranks know of a round, from its number alone.
struct Round {
  enum class End { complete, one_leaves, aborted };
  Round(std::uint64_t seed, int lane, std::uint64_t number, bool all_tables) {
    std::mt19937_64 random(seed * 1000003 + number * kLanes + static_cast<std::uint64_t>(lane));
    version = all_tables ? static_cast<int>(8 + random() % 5) : static_cast<int>(11 + random() % 2);
    end = static_cast<End>(random() % 3);
    leaver = static_cast<int>(random() % kRanks);
    groups = 1 + random() % 30;
    cut = random() % groups;
    seed_ = random();
  }
  [[nodiscard]] int parts(std::uint64_t group) const { return 1 + static_cast<int>((seed_ + group * 7) % kParts); }
  [[nodiscard]] std::size_t bytes(int sender, std::uint64_t group, int part) const {
    std::mt19937_64 random(name(sender, group, part));
    const std::size_t most = std::size_t{1} << random() % 19;
    return random() % (most + 1);
  }
  [[nodiscard]] std::uint64_t name(int sender, std::uint64_t group, int part) const {
    return seed_ + (group * kParts + static_cast<std::uint64_t>(part)) * kRanks + static_cast<std::uint64_t>(sender);
  }
  int version, leaver;
  End end;
  std::uint64_t groups, cut;

 private:
  std::uint64_t seed_;
};

// One lane's memory: on a GPU of its own, or the host's.
class Buffer {
 public:
  Buffer(DeviceMemory* gpus, int device) : gpus_(gpus), device_(gpus == nullptr ? 0 : device % gpus->devices()) {
    if (gpus_ != nullptr)
      at_ = gpus_->map(kBuffer, device_, true);
    else
      at_ = host_.emplace_back(kBuffer).data();
  }
  std::byte* at(std::size_t offset) { return at_ + offset; }
  [[nodiscard]] int type() const { return gpus_ == nullptr ? abi::kPointerHost : abi::kPointerCuda; }
  void write(std::size_t offset, std::span<const std::byte> bytes) {
    if (gpus_ != nullptr)
      gpus_->write(at(offset), bytes, device_);
    else
      std::memcpy(at(offset), bytes.data(), bytes.size());
  }
  void read(std::span<std::byte> to, std::size_t offset) {
    if (gpus_ != nullptr)
      gpus_->read(to, at(offset), device_);
    else
      std::memcpy(to.data(), at(offset), to.size());
  }

 private:
  DeviceMemory* const gpus_;
  const int device_;
  std::byte* at_ = nullptr;
  std::vector<std::vector<std::byte>> host_;
};

// One rank of one communicator: groups of receives from the previous rank, sends to the next one.
class Member {
 public:
  Member(Board& board, int number, const Round& round, Buffer& out, Buffer& in)
      : rank_(board, number, kRanks, round.version), round_(round), out_(out), in_(in), plain_(kEach) {}

  void meet(Meeting& meeting, std::uint64_t first, std::uint64_t number) {
    const int next = (rank_.rank + 1) % kRanks;
    void* listener = nullptr;
    rank_.must(rank_.table->listen(meeting.handles[rank_.rank], &listener), "listen");
    meeting.there[rank_.rank] = number + 1;
    rank_.until("a handle", [&] { return meeting.there[next] == number + 1; });
    HandleBytes theirs = meeting.handles[next];
    rank_.until("connecting", [&] {
      if (rank_.sender == nullptr) rank_.must(rank_.table->connect(theirs, &rank_.sender), "connect");
      if (rank_.receiver == nullptr) rank_.must(rank_.table->accept(listener, &rank_.receiver), "accept");
      return rank_.sender != nullptr && rank_.receiver != nullptr;
    });
    rank_.must(rank_.table->close_listener(listener), "closeListen");
    ++meeting.met;  // NCCL's ranks, too, meet again before one may end
    rank_.until("the others to connect", [&] { return meeting.met >= (number - first + 1) * kRanks; });
    from_ = rank_.register_memory(rank_.sender, out_.at(0), kBuffer, out_.type());
    into_ = rank_.register_memory(rank_.receiver, in_.at(0), kBuffer, in_.type());
  }

  // Until all has come and gone, or this rank is to end, or an error, which is the answer.
  abi::Code move() {
    const bool stops =
        round_.end == Round::End::aborted || (round_.end == Round::End::one_leaves && round_.leaver == rank_.rank);
    abi::Code code = abi::kSuccess;
    rank_.until("the messages", [&] {
      if (stops && received_ >= round_.cut) return true;
      for (const auto turn : {&Member::post, &Member::send, &Member::hear_sent, &Member::hear_received})
        if ((code = (this->*turn)()) != abi::kSuccess) return true;
      return received_ == round_.groups && sent_.group == round_.groups && flying_ == 0;
    });
    return code;
  }

  // As an abort: whatever is on its way. Nobody writes into the memory afterwards.
  void leave() {
    rank_.must(rank_.table->deregister(rank_.sender, from_), "deregMr");
    rank_.must(rank_.table->deregister(rank_.receiver, into_), "deregMr");
    std::vector<std::byte> mark(kBuffer, std::byte{0x5a});
    in_.write(0, mark);
    rank_.leave();
  }

 private:
  struct Place {
    std::uint64_t group = 0;
    int part = 0;
  };
  struct Flying {
    void* request = nullptr;
    std::size_t bytes = 0;
  };
  static std::size_t at(std::uint64_t group, int part) {
    return (group % kGroups * kParts + static_cast<std::size_t>(part)) * kEach;
  }

  abi::Code post() {
    if (posted_ == round_.groups || posted_ == received_ + kGroups) return abi::kSuccess;
    const int parts = round_.parts(posted_);
    void *data[kParts], *memory[kParts];
    std::size_t sizes[kParts];
    int tags[kParts];
    for (int part = 0; part < parts; ++part) {
      data[part] = in_.at(at(posted_, part));
      memory[part] = into_;
      sizes[part] = kEach;
      tags[part] = part;
    }
    void* request = nullptr;
    const abi::Code code = rank_.table->receive(rank_.receiver, parts, data, sizes, tags, memory, &request);
    if (request != nullptr) receives_[posted_++ % kGroups] = request;
    return code;
  }
  abi::Code send() {
    if (sent_.group == round_.groups || flying_ == kSends) return abi::kSuccess;
    const int part = round_.parts(sent_.group) - 1 - sent_.part;  // not in the order of the receives
    const std::size_t bytes = round_.bytes(rank_.rank, sent_.group, part), place = (sends_ % kSends) * kEach;
    if (!filled_) {
      fill(plain_.data(), bytes, round_.name(rank_.rank, sent_.group, part));
      out_.write(place, std::span(plain_).first(bytes));
      filled_ = true;
    }
    void* request = nullptr;
    const abi::Code code = rank_.table->send(rank_.sender, out_.at(place), bytes, part, from_, &request);
    if (request == nullptr) return code;
    in_flight_[sends_++ % kSends] = {request, bytes};
    ++flying_;
    filled_ = false;
    if (++sent_.part == round_.parts(sent_.group)) sent_ = {sent_.group + 1, 0};
    return code;
  }
  abi::Code hear_sent() {
    if (flying_ == 0) return abi::kSuccess;
    const Flying& oldest = in_flight_[(sends_ - flying_) % kSends];
    int done = 0, size = -1;
    const abi::Code code = rank_.table->test(oldest.request, &done, &size);
    if (code != abi::kSuccess || done == 0) return code;
    if (static_cast<std::size_t>(size) != oldest.bytes) throw Failure("a sent size");
    --flying_;
    return code;
  }
  abi::Code hear_received() {
    if (received_ == posted_) return abi::kSuccess;
    int done = 0, sizes[abi::kMostReceives] = {};
    const abi::Code code = rank_.table->test(receives_[received_ % kGroups], &done, sizes);
    if (code != abi::kSuccess || done == 0) return code;
    const int sender = (rank_.rank + kRanks - 1) % kRanks;
    for (int part = 0; part < round_.parts(received_); ++part) {
      const std::size_t bytes = round_.bytes(sender, received_, part);
      if (static_cast<std::size_t>(sizes[part]) != bytes) throw Failure("a received size");
      in_.read(std::span(plain_).first(bytes), at(received_, part));
      compare(plain_.data(), bytes, round_.name(sender, received_, part));
    }
    ++received_;
    return code;
  }

  Rank rank_;
  const Round& round_;
  Buffer& out_;
  Buffer& in_;
  std::vector<std::byte> plain_;
  void *from_ = nullptr, *into_ = nullptr;
  std::uint64_t posted_ = 0, received_ = 0, sends_ = 0;
  Place sent_;
  std::size_t flying_ = 0;
  bool filled_ = false;
  std::array<void*, kGroups> receives_{};
  std::array<Flying, kSends> in_flight_{};
};

struct Wanted {
  const char* transport;
  bool all_tables, gpu;
  int engines;
};

class Lane {
 public:
  Lane(Board& board, Meeting& meeting, int rank, int lane, const Wanted& wanted)
      : board_(board),
        meeting_(meeting),
        rank_(rank),
        lane_(lane),
        wanted_(wanted),
        gpus_(wanted.gpu ? std::make_unique<DeviceMemory>() : nullptr),
        out_(gpus_.get(), rank),
        in_(gpus_.get(), rank) {}

  // Rank 0's clock decides for all which round is the last.
  void run(std::uint64_t seed, std::uint64_t first, std::chrono::seconds length) {
    const auto end = Clock::now() + length;
    first_ = first;
    for (std::uint64_t number = first;; ++number) {
      try {
        one(Round(seed, lane_, number, wanted_.all_tables), number);
      } catch (const std::exception& error) {
        throw Failure("lane " + std::to_string(lane_) + ", FAIRWAY_SOAK_SEED=" + std::to_string(seed) +
                      " FAIRWAY_SOAK_FROM=" + std::to_string(number) + ": " + error.what());
      }
      if (rank_ == 0 && Clock::now() > end) meeting_.last = number;
      ++meeting_.arrived;
      const auto patience = Clock::now() + std::chrono::seconds(40);
      while (meeting_.arrived.load() < (number - first + 1) * kRanks) {
        if (Clock::now() > patience)
          throw Failure("the other ranks did not come to the end of round " + std::to_string(number));
        std::this_thread::yield();
      }
      check_mark();
      ++rounds;
      if (meeting_.last.load() == number) return;
    }
  }
  std::uint64_t rounds = 0;

 private:
  void one(const Round& round, std::uint64_t number) {
    Member member(board_, rank_, round, out_, in_);
    member.meet(meeting_, first_, number);
    const abi::Code code = member.move();
    if (code != abi::kSuccess && (code != abi::kRemoteError || round.end == Round::End::complete))
      throw Failure("the error " + std::to_string(code));
    member.leave();
  }
  // Every rank of the round has closed: what was written into memory that is no more registered would be here.
  void check_mark() {
    std::vector<std::byte> now(kBuffer);
    in_.read(now, 0);
    for (const std::byte each : now)
      if (each != std::byte{0x5a}) throw Failure("memory was written to after deregMr");
  }

  Board& board_;
  Meeting& meeting_;
  const int rank_, lane_;
  const Wanted& wanted_;
  const std::unique_ptr<DeviceMemory> gpus_;
  Buffer out_, in_;
  std::uint64_t first_ = 0;
};

class NcclSoak : public testing::TestWithParam<Wanted> {
 protected:
  NcclSoak() {
    ::setenv("FAIRWAY_ENGINES", std::to_string(GetParam().engines).c_str(), 1);
    ::setenv("FAIRWAY_PEER_TIMEOUT_MS", "20000", 1);  // on busy cores ranks are late, and none dies here
    ::setenv("FAIRWAY_GPU_MEMORY", GetParam().gpu ? "on" : "off", 1);
    if (GetParam().gpu) {
      ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
      ::unsetenv("FAIRWAY_TRANSPORTS");
    } else {
      ::setenv("FAIRWAY_TRANSPORTS", GetParam().transport, 1);
    }
    meetings_ = static_cast<Meeting*>(
        ::mmap(nullptr, sizeof(Meeting) * kLanes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int lane = 0; lane < kLanes; ++lane) meetings_[lane].last = ~0ull;
  }
  ~NcclSoak() override {
    ::unsetenv("FAIRWAY_ENGINES");
    ::unsetenv("FAIRWAY_PEER_TIMEOUT_MS");
    ::munmap(meetings_, sizeof(Meeting) * kLanes);
  }
  Meeting* meetings_ = nullptr;
};

TEST_P(NcclSoak, CommunicatorsComeAndGoUnderLoad) {
  const std::uint64_t seed = number("FAIRWAY_SOAK_SEED", 1), first = number("FAIRWAY_SOAK_FROM", 0);
  const std::chrono::seconds length(number("FAIRWAY_SOAK_SECONDS", kSanitized ? 1 : 3));
  Ranks ranks(kRanks, [&](Board& board, int rank) {
    std::array<std::string, kLanes> wrong;
    std::vector<std::thread> threads;
    for (int lane = 0; lane < kLanes; ++lane)
      threads.emplace_back([&, lane] {
        try {
          Lane mine(board, meetings_[lane], rank, lane, GetParam());
          mine.run(seed, first, length);
          if (mine.rounds == 0) throw Failure("no round");
          if (rank == 0) std::printf("lane %d: %d rounds of %d ranks\n", lane, static_cast<int>(mine.rounds), kRanks);
        } catch (const std::exception& error) {
          wrong[static_cast<std::size_t>(lane)] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    std::fflush(stdout);
    for (const std::string& each : wrong)
      if (!each.empty()) throw Failure(each);
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

INSTANTIATE_TEST_SUITE_P(Over, NcclSoak,
                         testing::Values(Wanted{"shm", false, false, 1}, Wanted{"shm", true, false, 2},
                                         Wanted{"tcp", false, false, 2}, Wanted{"cuda", false, true, 2}),
                         [](const auto& row) {
                           return std::string(row.param.transport) + (row.param.all_tables ? "AllTables" : "") +
                                  (row.param.engines == 1 ? "OneEngine" : "");
                         });

}  // namespace
}  // namespace fairway::nccl

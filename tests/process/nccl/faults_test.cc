#include <csignal>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "process/nccl/pattern.h"

// What goes wrong: every rank is told within the bound, in NCCL's log with the cause, and nobody waits for ever.
namespace fairway::nccl {
namespace {

constexpr std::size_t kFaultBytes = 4u << 20;
using Clock = std::chrono::steady_clock;

// Sends to the next rank and receives from the previous one until that gives an error; then closes everything. What the
// error was.
abi::Code until_error(Rank& rank) {
  std::vector<std::byte> out(kFaultBytes), in(kFaultBytes);
  void* from = rank.register_memory(rank.sender, out.data(), out.size());
  void* into = rank.register_memory(rank.receiver, in.data(), in.size());
  abi::Code code = abi::kSuccess;
  void *sending = nullptr, *receiving = nullptr;
  rank.until("an error", [&] {
    int tag = 5, done = 0;
    std::size_t size = kFaultBytes;
    void* data = in.data();
    const auto ok = [&](abi::Code given) {
      if (given != abi::kSuccess && code == abi::kSuccess) code = given;
      return code == abi::kSuccess;
    };
    if (receiving == nullptr)
      ok(rank.table->receive(rank.receiver, 1, &data, &size, &tag, &into, &receiving));
    else if (ok(rank.table->test(receiving, &done, nullptr)) && done != 0)
      receiving = nullptr;
    if (code != abi::kSuccess) return true;
    if (sending == nullptr)
      ok(rank.table->send(rank.sender, out.data(), kFaultBytes, tag, from, &sending));
    else if (ok(rank.table->test(sending, &done, nullptr)) && done != 0)
      sending = nullptr;
    return code != abi::kSuccess;
  });
  rank.must(rank.table->deregister(rank.sender, from), "deregMr");
  rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
  return code;
}

class NcclFaults : public testing::TestWithParam<const char*> {
 protected:
  NcclFaults() {
    ::setenv("FAIRWAY_TRANSPORTS", GetParam(), 1);
    ::setenv("FAIRWAY_GPU_MEMORY", "off", 1);
    ::setenv("FAIRWAY_PEER_TIMEOUT_MS", "1000", 1);
  }
};

// In a ring of four the dead rank's neighbours are told by Fairway; the others by these closing, as NCCL's abort does.
void survive(Board& board, int number) {
  Rank rank(board, number, 4, 12);
  rank.meet((number + 1) % 4, (number + 3) % 4);
  rank.barrier(0);
  const abi::Code code = until_error(rank);
  if (code != abi::kRemoteError) throw Failure("the error is " + std::to_string(code) + "\n" + said());
  if (said().find("W NET/Fairway: ") == std::string::npos) throw Failure("nothing in NCCL's log:\n" + said());
  rank.leave();
}

TEST_P(NcclFaults, AKilledRankIsToldToEveryOther) {
  Ranks ranks(4, survive);
  while (ranks.board().arrived[0] < 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto killed = Clock::now();
  ranks.kill(2);
  for (const int rank : {0, 1, 3}) EXPECT_EQ(ranks.outcome(rank), "ok") << rank;
  EXPECT_LT(Clock::now() - killed, std::chrono::seconds(20));
}

TEST_P(NcclFaults, AFrozenRankIsToldAfterTheBound) {
  Ranks ranks(4, survive);
  while (ranks.board().arrived[0] < 4) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ranks.stop(1, SIGSTOP);
  for (const int rank : {0, 2, 3}) EXPECT_EQ(ranks.outcome(rank), "ok") << rank;
}

TEST_P(NcclFaults, ClosingInFlightEndsBothSides) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 11);
    rank.meet(1 - number, 1 - number);
    std::vector<std::byte> out(kFaultBytes), in(kFaultBytes);
    void* from = rank.register_memory(rank.sender, out.data(), out.size());
    void* into = rank.register_memory(rank.receiver, in.data(), in.size());
    std::vector<void*> requests;
    for (int i = 0; i < 8; ++i) requests.push_back(rank.receive(in.data(), kFaultBytes, 1, into));
    rank.barrier(0);  // or the end could come before the last of the other's receives, which would say so itself
    if (number == 0) {
      for (int i = 0; i < 4; ++i) (void)rank.send(out.data(), kFaultBytes, 1, from);
      rank.must(rank.table->deregister(rank.sender, from), "deregMr");
      rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
      rank.leave();
      return;
    }
    abi::Code code = abi::kSuccess;
    rank.until("the other's end", [&] {
      for (void* request : requests) {
        int done = 0;
        code = rank.table->test(request, &done, nullptr);
        if (code != abi::kSuccess) return true;
        if (done != 0) std::erase(requests, request);
        if (done != 0) return false;
      }
      return false;
    });
    if (code != abi::kRemoteError) throw Failure("the error is " + std::to_string(code));
    rank.must(rank.table->deregister(rank.sender, from), "deregMr");
    rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

// What the receiver says last may come before the engine has heard that all of a send arrived, as by another lane.
TEST_P(NcclFaults, AReceiverThatClosesAtOnceFailsNoSendThatArrivedAndTheNextOne) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 12);
    std::vector<std::byte> bytes(64);
    for (int round = 0; round < kMostRanks; ++round) {
      rank.meet(1 - number, round, round);
      void* from = rank.register_memory(rank.sender, bytes.data(), bytes.size());
      void* into = rank.register_memory(rank.receiver, bytes.data(), bytes.size());
      if (number == 1) rank.finish(rank.receive(bytes.data(), bytes.size(), 1, into));
      if (number == 0) rank.finish(rank.send(bytes.data(), bytes.size(), 1, from));
      rank.must(rank.table->deregister(rank.receiver, into), "deregMr");
      rank.must(rank.table->close_receiver(rank.receiver), "closeRecv");
      rank.receiver = nullptr;
      abi::Code code = abi::kSuccess;
      rank.until("the other's end", [&] {
        void* sent = nullptr;
        code = rank.table->send(rank.sender, bytes.data(), bytes.size(), 1, from, &sent);
        return code != abi::kSuccess;
      });
      if (code != abi::kRemoteError) throw Failure("isend gave " + std::to_string(code));
      rank.must(rank.table->deregister(rank.sender, from), "deregMr");
      rank.part();
    }
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

TEST_P(NcclFaults, AMessageThatDoesNotFitIsAnErrorOnBothSides) {
  Ranks ranks(2, [](Board& board, int number) {
    Rank rank(board, number, 2, 12);
    rank.meet(1 - number, 1 - number);
    std::vector<std::byte> out(2000), in(2000);
    void* from = rank.register_memory(rank.sender, out.data(), out.size());
    void* into = rank.register_memory(rank.receiver, in.data(), in.size());
    void* request = rank.receive(in.data(), 1000, 1, into);
    abi::Code code = abi::kSuccess;
    rank.until("the refusal of isend", [&] {
      void* sent = nullptr;
      code = rank.table->send(rank.sender, out.data(), 1001, 1, from, &sent);
      if (sent != nullptr) throw Failure("it was taken");
      return code != abi::kSuccess;
    });
    if (code != abi::kInvalidUsage) throw Failure("isend gave " + std::to_string(code));
    rank.until("the receive's error", [&] {
      int done = 0;
      code = rank.table->test(request, &done, nullptr);
      if (done != 0) throw Failure("it was received");
      return code != abi::kSuccess;
    });
    if (code != abi::kInvalidUsage) throw Failure("test gave " + std::to_string(code));
    if (said().find("1001 bytes") == std::string::npos) throw Failure("no word of it:\n" + said());
    rank.barrier(0);
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

INSTANTIATE_TEST_SUITE_P(Over, NcclFaults, testing::Values("shm", "tcp"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace fairway::nccl

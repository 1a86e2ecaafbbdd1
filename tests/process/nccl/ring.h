#pragma once

#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include "process/nccl/pattern.h"

namespace fairway::nccl {

inline constexpr std::size_t kSlots = abi::kMostRequests, kSlotBytes = 96 * 1024;

// As many messages as there are `messages`, of every size, from each rank to the next one, up to 32 at a time.
inline void ring(Board& board, int number, int count, int version, int messages) {
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
  if (std::getenv("NCCL_DEBUG") != nullptr && !says(" by ")) throw Failure("no route in NCCL's log: " + said());
  rank.barrier(63);  // of a peer that has left no route can be told
  rank.leave();
}

}  // namespace fairway::nccl

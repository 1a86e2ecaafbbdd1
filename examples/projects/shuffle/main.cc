// All-to-all with back-pressure: every rank sends blocks to every other one, which has a few slots for each sender. A
// slot is written again only when its reader has let go of it, so a slow reader slows its senders and loses nothing.
//   shuffle [ranks] [MiB that each rank sends]
#include <algorithm>

#include "ranks.h"

namespace {

constexpr std::uint64_t kBlock = 256 << 10, kSlots = 8;

// What block `number` from one rank to another holds, in each of its words.
std::uint64_t content(int from, int to, std::uint64_t number) {
  return (number + 1) * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(from * Ranks::kMost + to);
}

// Counters: of slot s between this rank and another, how many blocks have arrived, and how many the reader let go of.
std::uint32_t arrived(int from, std::uint64_t slot) {
  return static_cast<std::uint32_t>(from * kSlots + slot);
}
std::uint32_t taken(int to, std::uint64_t slot) {
  return arrived(to + Ranks::kMost, slot);
}

struct Rank {
  fairway::Engine engine;
  int rank;
  std::vector<fairway::PeerId> peers;
  std::vector<fairway::RemoteRegion> inboxes;
  fairway::Region inbox, outbox;  // kSlots blocks for each rank

  static std::uint64_t place(int of, std::uint64_t slot) {
    return (static_cast<std::uint64_t>(of) * kSlots + slot) * kBlock;
  }
  static std::span<std::uint64_t> words(const fairway::Region& region, std::uint64_t at) {
    return {reinterpret_cast<std::uint64_t*>(region.address + at), kBlock / 8};
  }

  // The block that this rank sends to `to` next, when its slot is free on both sides.
  fairway::TransferId send(int to, std::uint64_t number, fairway::TransferId last_of_slot) {
    const std::uint64_t slot = number % kSlots;
    if (last_of_slot) need(need(engine.wait(last_of_slot)).status);
    need(engine.wait_counter(taken(to, slot), number / kSlots, kSoon));
    std::ranges::fill(words(outbox, place(to, slot)), content(rank, to, number));
    const fairway::Extent block{.local = {outbox.id, place(to, slot), kBlock},
                                .remote = {inboxes[static_cast<std::size_t>(to)].id, place(rank, slot)}};
    const auto told = fairway::notify_counter(arrived(rank, slot));
    return need(engine.write(peers[static_cast<std::size_t>(to)], block, {.notify = told}));
  }

  void take(int from, std::uint64_t number) {
    const std::uint64_t slot = number % kSlots;
    need(engine.wait_counter(arrived(from, slot), number / kSlots + 1, kSoon));
    const auto is_right = [&](std::uint64_t word) { return word == content(from, rank, number); };
    need(std::ranges::all_of(words(inbox, place(from, slot)), is_right), "a block is wrong");
    const fairway::Extent nothing{.local = {inbox.id, 0, 0}, .remote = {inboxes[static_cast<std::size_t>(from)].id, 0}};
    const auto free = fairway::notify_counter(taken(rank, slot));
    need(
        need(engine.wait(need(engine.write(peers[static_cast<std::size_t>(from)], nothing, {.notify = free})))).status);
  }
};

void shuffle(int rank, Ranks& all, std::uint64_t blocks) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const std::uint64_t size = static_cast<std::uint64_t>(all.count()) * kSlots * kBlock;
  const fairway::Region inbox = need(engine.allocate(size, fairway::Access::write));
  const fairway::Region outbox = need(engine.allocate(size, fairway::Access::none));
  need(engine.publish("inbox", inbox));
  Rank self{std::move(engine),
            rank,
            {},
            std::vector<fairway::RemoteRegion>(static_cast<std::size_t>(all.count())),
            inbox,
            outbox};
  self.peers = all.connect(self.engine, rank);
  for (std::size_t other = 0; other < self.peers.size(); ++other)
    if (self.peers[other]) self.inboxes[other] = need(self.engine.lookup(self.peers[other], "inbox"));

  all.meet();
  auto start = std::chrono::steady_clock::now();
  std::thread sender([&] {  // in turns, another one first at each rank: no inbox has all writers at once
    std::vector<fairway::TransferId> last(self.peers.size() * kSlots);
    for (std::uint64_t number = 0; number < blocks; ++number)
      for (int turn = 1; turn < all.count(); ++turn) {
        const int to = (rank + turn) % all.count();
        fairway::TransferId& before = last[static_cast<std::size_t>(to) * kSlots + number % kSlots];
        before = self.send(to, number, before);
      }
    for (const fairway::TransferId id : last)
      if (id) need(need(self.engine.wait(id)).status);
  });
  // Those of the first slots are not timed: in them each page is touched, and mapped, for the first time.
  const std::uint64_t warm_up = blocks > kSlots ? kSlots : 0;
  for (std::uint64_t number = 0; number < blocks; ++number) {
    if (number == warm_up) start = std::chrono::steady_clock::now();
    for (int turn = 1; turn < all.count(); ++turn) self.take((rank + all.count() - turn) % all.count(), number);
  }
  sender.join();
  all.meet();
  const double took = seconds_since(start);
  const double bytes = static_cast<double>((blocks - warm_up) * kBlock) * (all.count() - 1) * all.count();
  if (rank == 0)
    std::printf("%.3f GB among %d ranks in %.2f s, after %llu blocks of each pair to warm up: %.2f GB/s in all\n",
                bytes / 1e9, all.count(), took, static_cast<unsigned long long>(warm_up), bytes / took / 1e9);
  all.meet();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = numbers(argc, argv, {{"RANKS", 4, 2, Ranks::kMost}, {"MIB", 256, 1, 1 << 20}});
  const std::uint64_t blocks = std::max<std::uint64_t>(1, (given[1] << 20) / kBlock / (given[0] - 1));
  return Ranks::run(static_cast<int>(given[0]), [&](int rank, Ranks& all) { shuffle(rank, all, blocks); });
}

// Four processes that add up vectors together, and go on as three when one dies. Without arguments it starts the four:
// this program once more, with a folder and a rank each. docs/tutorial/12-collectives.md explains it.
#include <algorithm>
#include <filesystem>
#include <string>

#include <fairway/collectives.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kRanks = 4, kDies = 3, kRounds = 20;
constexpr std::size_t kMost = 4 << 20;  // floats

// Adds up rank + 1 of every rank: the time of each round.
double add(fairway::Communicator& group, std::vector<float>& values, std::size_t count, float expected) {
  fairway::Collective sum{.kind = fairway::CollectiveKind::all_reduce, .input = values.data(), .output = values.data()};
  sum.count = count;
  sum.type = fairway::DataType::f32;
  std::vector<double> us;
  for (int round = 0; round < kRounds; ++round) {
    std::fill_n(values.begin(), count, static_cast<float>(group.rank() + 1));
    need(group.run({.kind = fairway::CollectiveKind::barrier}));
    const auto start = Clock::now();
    need(group.run(sum));
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    if (std::count(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), expected) !=
        static_cast<std::ptrdiff_t>(count))
      need(fairway::Status(fairway::ErrorCode::checksum_mismatch, "a sum is wrong"));
  }
  std::nth_element(us.begin(), us.begin() + kRounds / 2, us.end());
  return us[kRounds / 2];
}

int be_rank(const std::string& folder, int rank) {
  fairway::Engine engine = need(fairway::Engine::open({.progress = fairway::Progress::caller}));
  const auto addresses = need(fairway::exchange_addresses(folder, rank, kRanks, engine.address()));
  fairway::Communicator group = need(fairway::Communicator::create(engine, rank, addresses));
  std::vector<float> values(kMost);
  for (std::size_t count : {2u, 1024u, 16384u, 262144u, 4194304u}) {
    const double us = add(group, values, count, 1 + 2 + 3 + 4);
    if (rank == 0) std::printf("%8zu bytes: %.0f us, every sum is right\n", count * sizeof(float), us);
  }
  if (rank == kDies) std::_Exit(0);

  const fairway::Status status = group.run({.kind = fairway::CollectiveKind::barrier});
  if (rank == 0) std::printf("rank %d is missed: %s\n", group.failure().rank, status.to_string().c_str());
  fairway::Communicator rest = need(group.shrink());
  add(rest, values, kMost, 1 + 2 + 3);
  if (rank == 0) std::printf("%d ranks go on, and every sum is right\n", rest.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_rank = argc == 3 && std::filesystem::is_directory(argv[1]);
  arguments(argc, argv, is_rank ? 2 : 0, "");
  if (is_rank) return be_rank(argv[1], std::atoi(argv[2]));
  char folder[] = "/tmp/ranks-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  for (int rank = 0; rank < kRanks; ++rank)
    if (::fork() == 0) return ::execl("/proc/self/exe", argv[0], folder, std::to_string(rank).c_str(), nullptr);
  int failed = 0;
  for (int status; ::wait(&status) > 0;) failed += status == 0 ? 0 : 1;
  std::filesystem::remove_all(folder);
  return failed;
}

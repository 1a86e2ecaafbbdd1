#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "soak_state.h"
#include "work.cuh"

// size: one program, from its options to its table
// NCCL soak test: makes, splits, destroys and aborts communicators while others run collectives, one process per GPU.
// Every result is compared. The seed and the round number alone decide what a round does.
//   soak --ranks 2 --seed 7 --seconds 480 --state FILE [--lanes 2] [--hosts A,B]
// FILE keeps the state, so that several runs add up to one. Progress goes to stderr; at the end a table goes there and
// one line of JSON to stdout. Exit code 0: all correct; 2: bad options; 6: a wrong value; 7: an NCCL error, or a call
// that did not end.
namespace {

using work::Call;
using work::Group;
using work::Op;
using Clock = std::chrono::steady_clock;

constexpr int kSlots = 3;  // calls that form one group
constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostComms = 4;
constexpr auto kPatience = std::chrono::seconds(60);  // time limit of one call; the slowest takes some milliseconds

struct Options {
  int ranks = 2, seconds = 480, lanes = 2;
  std::uint64_t seed = 1;
  std::string state;
  std::vector<std::string> hosts;
};

struct Lane {  // between the processes
  std::atomic<std::uint64_t> arrived;
  std::atomic<bool> over;
  std::atomic<std::uint64_t> next;  // next round
  nccl::UniqueId id;
};
struct Shared {
  Lane lanes[soak::kMostLanes];
  soak::Counts counts;  // rank 0's
};

struct Comm {
  Group group;
  std::vector<int> members;  // its members, as ranks of the world communicator
};

class Runner {
 public:
  Runner(const Options& options, Shared& shared, int rank, int lane, int device)
      : options_(options), shared_(shared), lane_(shared.lanes[lane]), rank_(rank), number_of_lane_(lane) {
    for (int i = 0; i < kSlots; ++i) slots_.emplace_back(device, kMostBytes);
  }

  void run() {
    const auto end = Clock::now() + std::chrono::seconds(options_.seconds);
    for (int rank = 0; rank < options_.ranks; ++rank) all_.push_back(rank);
    comms_.push_back(made(all_));
    for (number_ = lane_.next.load();; ++number_) {
      if (rank_ == 0) {
        lane_.next = number_;
        lane_.over = Clock::now() > end;
      }
      barrier();
      const bool over = lane_.over.load();
      barrier();
      if (over) break;
      one();
    }
    for (Comm& comm : comms_) NCCL_CHECK(nccl::library().ncclCommDestroy(comm.group.comm));
  }

 private:
  void one() {
    random_.seed(options_.seed * 1000003 + number_ * soak::kMostLanes + static_cast<std::uint64_t>(number_of_lane_));
    const int action = pick(100);
    // of those besides the world communicator
    const std::size_t which = 1 + static_cast<std::size_t>(pick(kMostComms));
    if (action < 8) {
      if (comms_.size() < kMostComms) split();
    } else if (action < 12) {
      if (comms_.size() == kMostComms) return;
      comms_.push_back(made(all_));
      count(soak::Event::made);
    } else if (action < 18) {
      if (which < comms_.size()) destroy(which);
    } else if (action < 22) {
      if (which < comms_.size()) abort(which);
    } else {
      calls(comms_[static_cast<std::size_t>(pick(static_cast<int>(comms_.size())))]);
    }
  }

  Comm made(const std::vector<int>& members) {
    Comm comm{{nullptr, rank_, options_.ranks}, members};
    if (rank_ == 0) NCCL_CHECK(nccl::library().ncclGetUniqueId(&lane_.id));
    barrier();
    const nccl::UniqueId id = lane_.id;
    NCCL_CHECK(nccl::library().ncclCommInitRank(&comm.group.comm, options_.ranks, id, rank_));
    barrier();  // until every rank has read the id
    return comm;
  }
  void split() {
    const int parts = 1 + pick(options_.ranks > 2 ? 2 : 8) % 2;  // with two ranks, parts of one rank each are rare
    Comm comm;
    for (int rank = rank_ % parts; rank < options_.ranks; rank += parts) comm.members.push_back(rank);
    comm.group.rank = rank_ / parts;
    comm.group.ranks = static_cast<int>(comm.members.size());
    NCCL_CHECK(nccl::library().ncclCommSplit(comms_[0].group.comm, rank_ % parts, rank_, &comm.group.comm, nullptr));
    comms_.push_back(comm);
    count(soak::Event::split);
  }
  void destroy(std::size_t which) {
    NCCL_CHECK(nccl::library().ncclCommDestroy(comms_[which].group.comm));
    comms_.erase(comms_.begin() + static_cast<std::ptrdiff_t>(which));
    count(soak::Event::destroyed);
  }

  // Aborts a communicator during a call that one rank does not join, which therefore cannot end. Before that, one call
  // with everybody: the first call connects, and connecting waits inside NCCL for all ranks.
  void abort(std::size_t which) {
    Comm& comm = comms_[which];
    const Call call = drawn(true);
    const int absent = pick(options_.ranks), pause_us = pick(5000);
    slots_[0].prepare(call, comm.group);
    slots_[0].start(call, comm.group);
    await(slots_[0], comm.group.comm, work::name_of(call.op));
    barrier();
    if (comm.group.ranks > 1 && rank_ != absent) slots_[0].start(call, comm.group);
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    NCCL_CHECK(nccl::library().ncclCommAbort(comm.group.comm));
    await(slots_[0], nullptr, "an aborted call");
    comms_.erase(comms_.begin() + static_cast<std::ptrdiff_t>(which));
    count(soak::Event::aborted);
  }

  // Runs one call, or several as a group: all of them collectives, or all of them sends and receives.
  void calls(Comm& comm) {
    const int together = pick(4) == 0 ? 2 + pick(kSlots - 1) : 1;
    const bool collective = pick(3) != 0;
    std::vector<Call> all;
    for (int i = 0; i < together; ++i) all.push_back(drawn(collective));
    for (int i = 0; i < together; ++i) slots_[i].prepare(all[i], comm.group);
    if (together > 1) NCCL_CHECK(nccl::library().ncclGroupStart());
    for (int i = 0; i < together; ++i) slots_[i].start(all[i], comm.group);
    if (together > 1) NCCL_CHECK(nccl::library().ncclGroupEnd());
    for (int i = 0; i < together; ++i) {
      await(slots_[i], comm.group.comm, work::name_of(all[i].op));
      if (const std::uint64_t wrong = slots_[i].check(all[i], comm.group); wrong != 0) fail(all[i], wrong);
      if (rank_ == 0) shared_.counts.add(static_cast<int>(all[i].op), all[i].bytes);
    }
    if (together > 1) count(soak::Event::grouped);
  }

  Call drawn(bool collective) {
    Call call{};
    do call.op = work::kOps[pick(static_cast<int>(std::size(work::kOps)))];
    while (collective != (call.op != Op::all_to_all && call.op != Op::send_recv && call.op != Op::pair));
    call.type = static_cast<nccl::Type>(pick(nccl::kTypes));
    call.reduction = static_cast<nccl::Reduction>(pick(4));
    const std::size_t least = std::size_t{8} << pick(24);
    call.bytes = std::min(kMostBytes, least + static_cast<std::size_t>(random_() % least));
    call.in_place = pick(2) == 0;
    call.seed = options_.seed + number_;
    return call;
  }

  // Waits for a stream's end by polling, with a time limit.
  void await(work::Gpu& slot, nccl::Comm comm, const char* what) {
    const auto limit = Clock::now() + kPatience;
    for (cudaError_t state; (state = cudaStreamQuery(slot.stream)) != cudaSuccess;) {
      if (state != cudaErrorNotReady) CUDA_CHECK(state);
      int error = 0;
      if (comm != nullptr) NCCL_CHECK(nccl::library().ncclCommGetAsyncError(comm, &error));
      if ((error != 0 && error != nccl::kInProgress) || Clock::now() > limit) {
        std::fprintf(stderr, "rank %d, lane %d, round %llu of seed %llu: %s: %s\n", rank_, number_of_lane_,
                     static_cast<unsigned long long>(number_), static_cast<unsigned long long>(options_.seed), what,
                     error != 0 ? nccl::library().ncclGetErrorString(error) : "no end in a minute");
        std::_Exit(7);
      }
    }
  }
  void fail(const Call& call, std::uint64_t wrong) {
    std::fprintf(stderr, "rank %d, lane %d, round %llu of seed %llu: %s of %zu bytes of %s: %llu wrong values\n", rank_,
                 number_of_lane_, static_cast<unsigned long long>(number_),
                 static_cast<unsigned long long>(options_.seed), work::name_of(call.op), call.bytes,
                 pattern::name_of(call.type), static_cast<unsigned long long>(wrong));
    std::_Exit(6);
  }
  void count(soak::Event event) {
    if (rank_ == 0) ++shared_.counts.events[static_cast<int>(event)];
  }
  int pick(int of) { return static_cast<int>(random_() % static_cast<std::uint64_t>(of)); }
  void barrier() {
    const std::uint64_t mine = lane_.arrived.fetch_add(1), ranks = static_cast<std::uint64_t>(options_.ranks);
    const auto limit = Clock::now() + 2 * kPatience;
    while (lane_.arrived.load() < (mine / ranks + 1) * ranks) {
      std::this_thread::yield();
      if (Clock::now() < limit) continue;
      std::fprintf(stderr, "rank %d, lane %d, round %llu of seed %llu: another rank does not come to its end\n", rank_,
                   number_of_lane_, static_cast<unsigned long long>(number_),
                   static_cast<unsigned long long>(options_.seed));
      std::_Exit(7);
    }
  }

  const Options& options_;
  Shared& shared_;
  Lane& lane_;
  const int rank_, number_of_lane_;
  std::mt19937_64 random_;
  std::uint64_t number_ = 0;
  std::vector<int> all_;
  std::vector<Comm> comms_;  // the first one is the world communicator
  std::vector<work::Gpu> slots_;
};

int run_rank(const Options& options, Shared& shared, int rank) {
  if (!options.hosts.empty())
    ::setenv("NCCL_HOSTID", options.hosts[static_cast<std::size_t>(rank) % options.hosts.size()].c_str(), 1);
  int devices = 0;
  CUDA_CHECK(cudaGetDeviceCount(&devices));
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < options.lanes; ++lane)
    lanes.emplace_back([&, lane] { Runner(options, shared, rank, lane, rank % devices).run(); });
  for (std::thread& lane : lanes) lane.join();
  return 0;
}

[[noreturn]] void refuse(const std::string& word) {
  std::fprintf(stderr, "soak: '%s' is not understood; the options are at the head of soak.cu\n", word.c_str());
  std::exit(2);
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i], value = i + 1 < count ? words[i + 1] : "";
    try {
      if (value.empty()) refuse(name);
      else if (name == "--ranks") options.ranks = std::stoi(value);
      else if (name == "--seed") options.seed = std::stoull(value);
      else if (name == "--seconds") options.seconds = std::stoi(value);
      else if (name == "--lanes") options.lanes = std::stoi(value);
      else if (name == "--state") options.state = value;
      else if (name == "--hosts") {
        std::stringstream stream(value);
        for (std::string part; std::getline(stream, part, ',');) options.hosts.push_back(part);
      } else refuse(name);
    } catch (const std::exception&) {
      refuse(value);
    }
  }
  if (options.ranks < 2 || options.ranks > 32) refuse("--ranks " + std::to_string(options.ranks));
  if (options.lanes < 1 || options.lanes > soak::kMostLanes) refuse("--lanes " + std::to_string(options.lanes));
  return options;
}

soak::State state_of(const Options& options, const Shared& shared, const soak::State& before, double seconds) {
  soak::State state = before;
  state.seed = options.seed;
  state.ranks = options.ranks;
  state.lanes = options.lanes;
  for (int lane = 0; lane < options.lanes; ++lane) state.next[lane] = shared.lanes[lane].next.load();
  state.seconds = before.seconds + seconds;
  state.counts.add(shared.counts);
  return state;
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  soak::State before;
  if (const std::string why = soak::read(options.state, options.seed, options.ranks, options.lanes, before); !why.empty()) {
    std::fprintf(stderr, "soak: %s\n", why.c_str());
    return 2;
  }
  auto* shared = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int lane = 0; lane < options.lanes; ++lane) shared->lanes[lane].next = before.next[lane];
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();  // before any CUDA call
    if (child == 0) std::_Exit(run_rank(options, *shared, rank));
    children.push_back(child);
  }
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  int outcome = 0;
  double told = 0;
  for (std::size_t left = children.size(); left > 0;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended == 0) {
      ::usleep(100000);
      if (seconds() < told + 5) continue;
      told = seconds();
      const soak::State now = state_of(options, *shared, before, told);
      soak::write(options.state, now);
      std::fprintf(stderr, "%s\n", soak::progress(now).c_str());
      continue;
    }
    --left;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (outcome == 0) outcome = WIFEXITED(status) ? WEXITSTATUS(status) : 7;
    for (const pid_t child : children)  // they would wait for it for ever
      if (child != ended) ::kill(child, SIGKILL);
  }
  const soak::State now = state_of(options, *shared, before, seconds());
  soak::write(options.state, now);  // also after a failure: the failed round is run again
  soak::print_table(now);
  soak::print_json(now, outcome);
  return outcome == 4 || outcome == 3 ? 7 : outcome;
}

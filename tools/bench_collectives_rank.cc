#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "bench_collectives.h"

namespace fairway::tool::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kAnswer{5};  // of a rank; its operations end after kTimeout
constexpr std::chrono::minutes kTimeout{2};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  (void)std::fflush(stdout);
}

// "all_reduce f32 sum automatic 0 65536 4 200"
std::string order_of(const CollectiveWork& work, std::uint64_t rounds) {
  return fmt::format("{} {} {} {} {} {} {} {}\n", work.operation(), to_string(work.type), to_string(work.reduction),
                     to_string(work.algorithm), work.local ? 1 : 0, work.bytes, work.ranks, rounds);
}

Status read_order(const std::string& line, CollectiveWork& work, std::uint64_t& rounds) {
  std::istringstream words(line);
  std::string kind, type, reduction, algorithm;
  words >> kind >> type >> reduction >> algorithm >> work.local >> work.bytes >> work.ranks >> rounds;
  const auto t = type_of(type);
  const auto r = reduction_of(reduction);
  const auto a = algorithm_of(algorithm);
  if (!words || !set_operation(work, kind) || !t || !r || !a)
    return {ErrorCode::invalid_argument, "no such order: " + line};
  work.type = *t;
  work.reduction = *r;
  work.algorithm = *a;
  return {};
}

// The next line of standard input, with the engine at work meanwhile: a rank that is not done yet may need its answers.
bool next_line(Engine& engine, std::string& line) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (std::cin.rdbuf()->in_avail() <= 0 && ::poll(&input, 1, 0) == 0) {
    (void)engine.poll({});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return static_cast<bool>(std::getline(std::cin, line));
}

// send_recv: to the next rank, and from the one before. A rank alone copies.
Status exchange(Communicator& group, const Collective& memory, std::uint64_t size_bytes) {
  if (group.size() == 1) return std::memcpy(memory.output, memory.input, size_bytes), Status();
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  const auto receiving = group.start_receive(memory.output, size_bytes, before);
  if (!receiving) return receiving.status();
  const auto sending = group.start_send(memory.input, size_bytes, next);
  const Status sent = sending ? group.wait(*sending) : sending.status();
  const Status received = group.wait(*receiving);
  return sent ? received : sent;
}

Result<Timed> do_order(Communicator& group, const std::string& line) {
  CollectiveWork work;
  std::uint64_t rounds = 0;
  if (Status status = read_order(line, work, rounds); !status) return status;
  const CollectiveMemory memory(work, group.rank());
  Timed timed;
  timed.algorithm = work.messages ? "messages" : to_string(group.chosen(memory.call()));
  const auto once = [&] {
    return work.messages ? exchange(group, memory.call(), memory.size_bytes()) : group.run(memory.call());
  };
  for (std::uint64_t i = 0, warm = std::max<std::uint64_t>(1, rounds / 10); i < warm; ++i)
    if (Status status = once(); !status) return status;
  if (Status status = group.run({}); !status) return status;
  const auto start = Clock::now();
  for (std::uint64_t i = 0; i < rounds; ++i)
    if (Status status = once(); !status) return status;
  timed.us = us_since(start) / static_cast<double>(rounds);
  timed.wrong = memory.wrong();
  return timed;
}

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::start(int ranks, const std::string& path, const RankNetwork* network) {
  auto group = std::make_unique<RankGroup>();
  std::string addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    group->ranks_.push_back(std::make_unique<OtherProcess>());
    const bool shares = network != nullptr && network->per_host() > 1;  // its host with other ranks
    std::vector<std::string> words{"bench",   "collectives",
                                   "--rank",  fmt::format("{}", rank),
                                   "--ranks", fmt::format("{}", ranks),
                                   "--via",   shares ? "shm," + path : path};
    std::optional<sys::InNamespace> inside;
    if (network != nullptr) {
      words.insert(words.end(), {"--listen", network->address(rank) + ":0"});
      inside.emplace(network->of(rank));
      if (!inside->status()) return inside->status();
    }
    const auto address = group->ranks_.back()->start(words);
    if (!address) return address.status().with_context(fmt::format("rank {}", rank));
    addresses += (addresses.empty() ? "" : " ") + *address;
  }
  for (const auto& rank : group->ranks_)
    if (Status status = rank->say(addresses + "\n"); !status) return status;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto joined = group->ranks_[static_cast<std::size_t>(rank)]->hear(kAnswer);
    if (!joined) return joined.status().with_context(fmt::format("rank {}", rank));
    if (joined->starts_with(kCannot)) return Status(ErrorCode::system_error, joined->substr(kCannot.size()));
    group->join_ms_ = std::max(group->join_ms_, std::strtod(joined->c_str(), nullptr));
  }
  return group;
}

RankGroup::~RankGroup() {
  for (const auto& rank : ranks_) rank->close_input();
}

Result<Timed> RankGroup::run(const CollectiveWork& work, std::uint64_t rounds) {
  for (const auto& rank : ranks_)
    if (Status status = rank->say(order_of(work, rounds)); !status) return status;
  Timed all;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto line = ranks_[rank]->hear(kAnswer);
    if (!line) return line.status().with_context(fmt::format("rank {}", rank));
    if (line->starts_with(kCannot)) return Status(ErrorCode::system_error, line->substr(kCannot.size()));
    Timed one;
    std::istringstream(*line) >> one.us >> one.wrong >> one.algorithm;
    all.us = std::max(all.us, one.us);
    all.wrong += one.wrong;
    all.algorithm = one.algorithm;
  }
  return all;
}

Status be_rank(int rank, int ranks, const std::vector<std::string>& paths, const std::string& listen) {
  EngineOptions options;
  options.name = fmt::format("rank-{}", rank);
  options.progress = Progress::caller;
  options.transports = paths;
  if (!listen.empty()) {
    options.listen = listen;
    options.job_key =
        "fairway bench collectives";  // addresses beyond loopback need one; nobody else is on this network
  }
  if (static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) options.spin = std::chrono::microseconds(0);
  auto engine = Engine::open(options);
  if (!engine) return engine.status();
  say(engine->address());
  std::string line;
  if (!std::getline(std::cin, line)) return {};
  std::istringstream words(line);
  std::vector<std::string> addresses;
  for (std::string address; words >> address;) addresses.push_back(address);
  const auto start = Clock::now();
  auto group = Communicator::create(*engine, rank, addresses, {.timeout = kTimeout});
  if (!group) return group.status();
  say(fmt::format("{:.3f}", us_since(start) / 1e3));
  while (next_line(*engine, line)) {
    const auto timed = do_order(*group, line);
    if (!timed) return timed.status();
    say(fmt::format("{:.4f} {} {}", timed->us, timed->wrong, timed->algorithm));
  }
  return {};
}

// Blocks that do not stay in a core's own cache, as buffers of collectives do not.
MachineRates measure_rates() {
  constexpr std::size_t kBytes = 16U << 20;
  std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
  MachineRates rates;
  rates.cores = std::max(1U, std::thread::hardware_concurrency());
  for (int turn = 0; turn < 7; ++turn) {
    const auto start = Clock::now();
    std::copy(from.begin(), from.end(), to.begin());
    rates.copy = std::max(rates.copy, static_cast<double>(kBytes) / us_since(start) * 1e6);
    std::swap(from, to);
  }
  return rates;
}

// Each rank reads the others' memory: it copies a byte once, and combines one in the time of 1.5 copies (two bytes read
// and one written, where a copy reads one and writes one). Ranks beyond the cores wait their turn.
double bound_us(const CollectiveWork& work, const std::string& path, const MachineRates& rates) {
  if (path != "shm" || rates.copy == 0) return 0;
  const double n = work.ranks, s = static_cast<double>(work.whole());
  const double turns = std::max(1.0, n / rates.cores);
  const double copy = 1 / rates.copy * 1e6, combine = 1.5 * copy;
  if (work.messages) return turns * s * copy;
  switch (work.kind) {
    case CollectiveKind::all_reduce: return turns * (n - 1) / n * s * (combine + copy);
    case CollectiveKind::reduce: return (turns * combine + copy) * (n - 1) / n * s;
    case CollectiveKind::reduce_scatter: return turns * (n - 1) / n * s * combine;
    case CollectiveKind::broadcast: return std::max(1.0, (n - 1) / rates.cores) * s * copy;
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::all_to_allv: return turns * s * copy;
    case CollectiveKind::gather: return s * copy;
    case CollectiveKind::scatter: return turns / n * s * copy;
    case CollectiveKind::barrier: break;
  }
  return 0;
}

}  // namespace fairway::tool::bench

#include "sim/group.h"

#include <algorithm>
#include <string>

#include "collectives/clock.h"
#include "collectives/host/nearness.h"
#include "engine/open.h"
#include "transport/loopback/direct_wire.h"

namespace fairway::sim {
namespace {

collectives::Time virtual_now() {
  Strand* const strand = Strand::current();
  if (strand == nullptr) return collectives::Clock::real_now();
  return collectives::Time(std::chrono::nanoseconds(strand->host().now()));
}

// Ranks of a host while a group joins, whose programs run on this thread.
thread_local int ranks_of_a_host = 1;
std::uint64_t virtual_host(const Engine&) {
  return Strand::current()->host().index() / static_cast<std::uint64_t>(ranks_of_a_host);
}

SimulationOptions simulation_options(const GroupOptions& options, Status& failed, const bool& joined) {
  SimulationOptions out;
  out.seed = options.seed;
  out.steady = true;
  out.most_time = 100'000 * kSecond;
  out.most_events = ~std::uint64_t{0};
  if (options.trace)
    out.trace = [&options, &joined](const std::string& line) {
      if (joined) options.trace(line);
    };
  out.stuck = [&failed](const std::string& why) { failed = Status(ErrorCode::timed_out, why); };
  return out;
}

NicDevice device_of(const SteadyLink& link) {
  NicDevice device;
  device.device = transport::loopback::DirectWire::default_device();
  device.device.name = "wire";
  device.device.bytes_per_second = link.bytes_per_second;
  device.nature.steady = true;
  device.nature.latency_min = device.nature.latency_max = link.latency;
  device.nature.message_time = link.message;
  return device;
}

EngineOptions engine_options(const GroupOptions& options, const std::string& address, int rank) {
  const auto ranks = static_cast<std::uint32_t>(options.ranks);
  EngineOptions out;
  out.name = "r" + std::to_string(rank);
  out.listen = address;
  out.job_key = "a key for all";
  out.progress = Progress::caller;
  out.max_transfers = options.max_transfers != 0 ? options.max_transfers : ranks + 256;
  out.max_regions = 64;
  out.max_remote_regions = 4 * ranks + 64;
  out.max_peers = ranks + 8;
  out.max_counters = (ranks <= 128 ? 24 : 10) * ranks + 64;  // each is 64 bytes; a communicator takes 9 for each rank
  out.notifications_per_peer = 1;
  out.unexpected_bytes_per_peer = 2048;
  out.peer_timeout = options.peer_timeout;
  out.prove_paths = false;
  return out;
}

}  // namespace

Group::Group(const GroupOptions& options)
    : options_(options), simulation_(simulation_options(options_, failed_, joined_)), fabric_(simulation_) {
  if (!kFibersWork) {
    failed_ = Status(ErrorCode::unsupported,
                     "simulated ranks need a build without sanitizers, which do not follow their programs' stacks");
    return;
  }
  collectives::Clock::other.store(&virtual_now, std::memory_order_relaxed);
  for (int number = 0; number < options_.ranks; ++number) {
    auto rank = std::make_unique<Rank>();
    rank->number = number;
    rank->host = &simulation_.add_host();
    rank->strand = std::make_unique<Strand>(*rank->host);
    auto wire = fabric_.plug_in(*rank->host, {device_of(options_.link)}, "wire");
    const EngineOptions engine = engine_options(options_, rank->host->address() + ":7000", number);
    auto opened =
        EngineAccess::open(engine, rank->host->runtime(), [wire](transport::RegionTable& regions, Runtime& runtime) {
          std::vector<std::unique_ptr<transport::Transport>> transports;
          transports.push_back(transport::open_loopback_transport(wire, regions, runtime));
          return transports;
        });
    if (!opened) {
      failed_ = opened.status();
      return;
    }
    rank->engine = std::make_unique<Engine>(std::move(*opened));
    addresses_.push_back(rank->engine->address());
    ranks_.push_back(std::move(rank));
  }
}

Group::~Group() {
  if (leaves_open_) {
    for (const auto& rank : ranks_) {
      (void)rank->communicator.release();
      (void)rank->engine.release();
    }
    return;
  }
  for (const auto& rank : ranks_)
    if (rank->dead || rank->host->frozen()) rank->host->bury();
  std::vector<int> all;
  for (const auto& rank : ranks_) all.push_back(rank->number);
  failed_ = {};
  for (const auto& rank : ranks_) rank->dead = false;
  for (int number : all)  // what a dead one was in
    while (!rank(number).strand->ended() && simulation_.step()) {
    }
  (void)run(all, [](Rank& rank) {
    rank.engine->close();
    rank.communicator.reset();
    rank.engine.reset();
  });
}

Status Group::join() {
  std::vector<Status> outcomes(ranks_.size());
  ranks_of_a_host = options_.per_host;
  if (options_.per_host > 1) collectives::other_host.store(&virtual_host, std::memory_order_relaxed);
  const Status ran = run([&](Rank& rank) {
    // A half of its peers each, and never many of one at once.
    const int size = options_.ranks;
    const auto place = [size](int number) { return static_cast<std::size_t>((number + size) % size); };
    Status& outcome = outcomes[static_cast<std::size_t>(rank.number)];
    for (int distance = 1; distance <= size / 2 && outcome; ++distance)
      outcome = rank.engine->connect(addresses_[place(rank.number - distance)], options_.timeout).status();
    CommunicatorOptions communicator;
    communicator.timeout = options_.timeout;
    communicator.slot_bytes = options_.slot_bytes;
    communicator.first_immediate = 1;
    if (!outcome) return;
    auto made = Communicator::create(*rank.engine, rank.number, addresses_, communicator);
    outcome = made.status();
    if (made) rank.communicator = std::make_unique<Communicator>(std::move(*made));
  });
  collectives::other_host.store(nullptr, std::memory_order_relaxed);
  if (!ran) return ran;
  for (const Status& outcome : outcomes)
    if (!outcome) return outcome;
  joined_ = true;
  return {};
}

Status Group::run(const std::function<void(Rank&)>& program) {
  std::vector<int> living;
  for (const auto& rank : ranks_)
    if (!rank->dead) living.push_back(rank->number);
  return run(living, program);
}

Status Group::run(const std::vector<int>& ranks, const std::function<void(Rank&)>& program) {
  if (!failed_) return failed_;
  for (const int number : ranks) {
    Rank& one = rank(number);
    // Its own copy: a rank that dies may go on when all others have ended.
    one.strand->start([&one, program] { program(one); }, simulation_.now());
  }
  for (const int number : ranks) {
    Rank& one = rank(number);
    while (!one.dead && !one.host->frozen() && !one.strand->ended())
      if (!simulation_.step())
        return failed_ = Status(ErrorCode::timed_out, "no rank can go on, and none has a deadline");
    if (!failed_) return failed_;
  }
  return {};
}

void Group::kill(int number) {
  Rank& one = rank(number);
  one.dead = true;
  one.host->kill();
  fabric_.host_killed(*one.host);
}

}  // namespace fairway::sim

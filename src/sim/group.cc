#include "sim/group.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include "collectives/clock.h"
#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"
#include "engine/open.h"
#include "transport/loopback/direct_wire.h"

namespace fairway::sim {
namespace {

using collectives::Buffer, collectives::Place, collectives::Schedule, collectives::Step;

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

namespace {

// An element of 8 bytes: which one of a rank's input it is, and of which ranks it is combined, a bit each.
struct Name {
  std::uint64_t index = 0, ranks = 0;
};

bool combines(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

// Elements of a rank's input that are one block by name.
std::uint64_t block_elements(const FollowedCall& followed) {
  const GroupCall& call = followed.call;
  const auto ranks = static_cast<std::uint64_t>(call.ranks);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      if (call.algorithm == Algorithm::hierarchical) {
        const int last = call.ranks - (call.ranks - 1) / call.per_host * call.per_host;
        return call.count /
               static_cast<std::uint64_t>(collectives::parts_in_levels(std::min(call.per_host, last), call.bytes()));
      }
      return call.algorithm == Algorithm::direct || call.algorithm == Algorithm::ring ? call.count / ranks : call.count;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce: return std::min(call.count, call.piece / 8);
    default: return call.count;
  }
}

// "0+1", or "0..3" of three and more in a row.
std::string text_of(std::uint64_t ranks) {
  std::string text;
  for (int from = 0; from < 64; ++from) {
    if ((ranks >> from & 1U) == 0) continue;
    const int to = from + std::countr_one(ranks >> from) - 1;
    for (int rank = from; rank <= to; rank = to - from > 1 && rank == from ? to : rank + 1)
      text += (text.empty() ? "" : rank == to && to - from > 1 ? ".." : "+") + std::to_string(rank);
    from = to;
  }
  return text;
}

class Run {
 public:
  explicit Run(const FollowedCall& followed)
      : followed_(followed), call_(followed.call), size_(static_cast<std::size_t>(call_.ranks)), ranks_(size_) {
    between_.resize(size_ * size_);
    contents_.resize(size_ * size_);
    for (int rank = 0; rank < call_.ranks; ++rank) groups_.push_back(rank / call_.per_host);
    for (int rank = 0; rank < call_.ranks; ++rank) prepare(rank);
  }

  Result<std::vector<std::vector<Content>>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < size_; ++rank)
        while (step(rank)) moved = true;
    }
    for (const Rank& rank : ranks_)
      if (rank.next != rank.schedule.steps.size())
        return Status(ErrorCode::protocol_error, "the schedules of a collective wait for each other");
    return std::move(contents_);
  }

 private:
  // The last message that was not combined when it came.
  struct Received {
    const Name* into = nullptr;
    std::size_t pair = 0, number = 0;
  };
  struct Rank {
    Schedule schedule;
    std::size_t next = 0;
    Received received;
    std::vector<Name> input, output, scratch;
  };
  struct Message {
    std::vector<Name> names;
    std::size_t number = 0;  // of those from that rank to this one
  };

  void prepare(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    collectives::Shape shape;
    shape.kind = call_.kind;
    shape.algorithm = call_.algorithm;
    shape.rank = number;
    shape.size = call_.ranks;
    shape.root = call_.root;
    shape.count = call_.count;
    shape.element_bytes = 8;
    shape.piece_bytes = call_.piece;
    shape.in_place = followed_.in_place;
    if (call_.per_host > 1) shape.groups = groups_;
    collectives::make_schedule(shape, rank.schedule);
    rank.input.resize(call_.count * size_);
    for (std::uint64_t i = 0; i < rank.input.size(); ++i) rank.input[i] = {i, std::uint64_t{1} << number};
    rank.output = followed_.in_place ? rank.input : std::vector<Name>(rank.input.size());
    rank.scratch.resize(rank.schedule.scratch_bytes / 8 + 1);
  }

  static std::span<Name> at(Rank& rank, Place place, std::uint64_t bytes) {
    std::vector<Name>& buffer = place.buffer == Buffer::input    ? rank.input
                                : place.buffer == Buffer::output ? rank.output
                                                                 : rank.scratch;
    return std::span(buffer).subspan(place.at / 8, bytes / 8);
  }

  // What is combined is the same element of other ranks.
  static void combine(std::span<Name> into, std::span<const Name> from, std::span<const Name> with) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = {from[i].index, from[i].ranks | with[i].ranks};
  }

  bool step(std::size_t number) {
    Rank& rank = ranks_[number];
    if (rank.next == rank.schedule.steps.size()) return false;
    const Step& step = rank.schedule.steps[rank.next];
    if (step.kind == Step::Kind::send) {
      const std::size_t pair = number * size_ + static_cast<std::size_t>(step.peer);
      const auto names = at(rank, step.from, step.bytes);
      between_[pair].push_back({{names.begin(), names.end()}, contents_[pair].size()});
      contents_[pair].push_back(content_of(names, static_cast<int>(number)));
    } else if (collectives::takes(step.kind)) {
      const std::size_t pair = static_cast<std::size_t>(step.peer) * size_ + number;
      if (between_[pair].empty()) return false;
      const Message message = std::move(between_[pair].front());
      between_[pair].pop_front();
      const auto into = at(rank, step.into, step.bytes);
      if (step.kind == Step::Kind::receive) {
        std::copy_n(message.names.begin(), into.size(), into.begin());
        rank.received = {into.data(), pair, message.number};
      } else {
        combine(into, at(rank, step.from, step.bytes), message.names);
        contents_[pair][message.number].combined = true;
      }
    } else if (step.kind == Step::Kind::copy) {
      const auto from = at(rank, step.from, step.bytes);
      std::copy(from.begin(), from.end(), at(rank, step.into, step.bytes).begin());
    } else if (step.kind == Step::Kind::fold) {
      const auto into = at(rank, step.into, step.bytes);
      combine(into, into, at(rank, step.from, step.bytes));
      const Received& last = rank.received;
      if (last.into == into.data()) contents_[last.pair][last.number].combined = true;
    }
    ++rank.next;
    return true;
  }

  [[nodiscard]] Content content_of(std::span<const Name> names, int sender) const {
    Content content;
    content.bytes = names.size() * 8;
    const std::uint64_t block = std::max<std::uint64_t>(1, block_elements(followed_));
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;  // block, ranks
    for (const Name& name : names) {
      const std::pair one(name.index / block, name.ranks);
      if (std::ranges::find(seen, one) != seen.end()) continue;
      content.text += (seen.empty() ? "" : ", ") + text_of(one.first, one.second, sender);
      seen.push_back(one);
    }
    if (seen.size() == 1) content.one = one_of(seen[0].first, seen[0].second);
    return content;
  }

  [[nodiscard]] std::string letter(std::uint64_t block) const {
    return blocks_of(followed_) == 1 ? std::string() : std::string(1, static_cast<char>('A' + block));
  }
  [[nodiscard]] std::string text_of(std::uint64_t block, std::uint64_t ranks, int sender) const {
    if (call_.kind == CollectiveKind::all_gather || call_.kind == CollectiveKind::gather) return sim::text_of(ranks);
    if (call_.kind == CollectiveKind::all_to_all) return sim::text_of(ranks) + "→" + std::to_string(block);
    std::string name = letter(block);
    if (!combines(call_.kind)) return name;
    if (std::popcount(ranks) == call_.ranks) return "Σ" + name;
    if (ranks == std::uint64_t{1} << sender && !name.empty()) return name;
    return name + (name.empty() ? "" : " ") + sim::text_of(ranks);
  }
  [[nodiscard]] int one_of(std::uint64_t block, std::uint64_t ranks) const {
    const bool by_block = blocks_of(followed_) > 1 && call_.kind != CollectiveKind::all_to_all;
    if (by_block || call_.kind == CollectiveKind::broadcast) return static_cast<int>(block);
    return std::has_single_bit(ranks) ? std::countr_zero(ranks) : -1;
  }

  const FollowedCall& followed_;
  const GroupCall& call_;
  const std::size_t size_;
  std::vector<int> groups_;
  std::vector<Rank> ranks_;
  std::vector<std::deque<Message>> between_;
  std::vector<std::vector<Content>> contents_;
};

}  // namespace

int blocks_of(const FollowedCall& followed) {
  const GroupCall& call = followed.call;
  if (call.kind == CollectiveKind::reduce_scatter || call.kind == CollectiveKind::scatter ||
      call.kind == CollectiveKind::all_to_all)
    return call.ranks;
  const std::uint64_t block = block_elements(followed);
  return block == 0 ? 1 : static_cast<int>((call.count + block - 1) / block);
}

Result<std::vector<std::vector<Content>>> contents_of(const FollowedCall& followed) {
  return Run(followed).run();
}

}  // namespace fairway::sim

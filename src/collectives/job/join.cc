// How ranks become a communicator.
#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "collectives/counter_range.h"
#include "collectives/host/choose.h"
#include "collectives/host/schedule.h"
#include "collectives/state.h"

namespace fairway {

using namespace collectives;  // NOLINT(google-build-using-namespace)

Status collectives::check_options(const CommunicatorOptions& options) {
  const auto invalid = [](const char* text) { return Status(ErrorCode::invalid_argument, text); };
  if (options.name.empty() || options.name.size() > 200) return invalid("name: 1 to 200 characters");
  if (options.timeout.count() <= 0) return invalid("timeout: more than 0");
  if (options.slot_bytes != 0 &&
      (options.slot_bytes < 64 || options.slot_bytes > (4U << 20) || options.slot_bytes % 8 != 0))
    return invalid("slot_bytes: 0, or a multiple of 8 from 64 to 4 MiB");
  return {};
}

namespace {

constexpr std::uint32_t kUsualSlot = 64U << 10;
// Between hosts a message costs system calls and wake-ups on both sides: with eight times as long ones a long
// all-reduce takes a third less CPU time (docs/collective-algorithms.md).
constexpr std::uint32_t kNetworkSlot = 512U << 10;
constexpr Timeout kSpin{20};
constexpr Timeout kMapping{2'000'000};          // to map the zones of ranks that run
constexpr std::uint32_t kAllSlots = 16U << 20;  // of one rank

// By their addresses, of which every rank has the same list.
bool on_one_host(const std::vector<Member>& members) {
  const auto host = [](const Member& one) { return one.address.substr(0, one.address.rfind(':')); };
  return std::all_of(members.begin(), members.end(),
                     [&](const Member& one) { return host(one) == host(members.front()); });
}

std::uint32_t slot_bytes_of(const CommunicatorOptions& options, const std::vector<Member>& members) {
  if (options.slot_bytes != 0 || members.size() < 2) return std::max<std::uint32_t>(options.slot_bytes, 64);
  const auto share = kAllSlots / (kSlots * static_cast<std::uint32_t>(members.size() - 1)) / 64 * 64;
  return std::clamp<std::uint32_t>(share, 256, on_one_host(members) ? kUsualSlot : kNetworkSlot);
}

Near near_of(const std::vector<int>& groups) {
  std::vector<int> ranks;
  for (const int group : groups) {
    if (ranks.size() <= static_cast<std::size_t>(group)) ranks.resize(static_cast<std::size_t>(group) + 1);
    ++ranks[static_cast<std::size_t>(group)];
  }
  Near near;
  near.groups = static_cast<int>(ranks.size());
  near.least = *std::min_element(ranks.begin(), ranks.end());
  near.most = *std::max_element(ranks.begin(), ranks.end());
  return near;
}

// Counters count what comes late for a communicator that has ended, so the next one needs others: its name is another.
std::uint64_t first_counter_of(const CommunicatorOptions& options) {
  if (options.first_immediate != 0) return options.first_immediate;
  return CounterRange::kBegin + hash_of(options.name) % (CounterRange::kEnd - CounterRange::kBegin);
}

// Connects, and tries again while nothing answers there: the other rank may start later.
Result<PeerId> meet_engine(Engine& engine, const std::string& address, Time deadline, const std::stop_token& stop) {
  for (;;) {
    auto peer = engine.connect(address, until(deadline));
    const ErrorCode code = peer ? ErrorCode::ok : peer.status().code();
    if (code != ErrorCode::unreachable && code != ErrorCode::not_found) return peer;
    if (until(deadline) <= Timeout{20'000}) return peer;
    if (stop.stop_requested()) return Status(ErrorCode::cancelled, "joining was stopped");
    // A pause in which the engine works.
    (void)engine.wait_counter(CounterRange::kBegin, ~std::uint64_t{0}, Timeout{10'000});
  }
}

}  // namespace

Communicator::State::State(Engine& used, std::vector<Member> members, int rank, const CommunicatorOptions& given,
                           std::shared_ptr<Family> shared, CounterRange own)
    : engine(used),
      options(given),
      family(std::move(shared)),
      counters(std::move(own)),
      lanes(used, members, rank, slot_bytes_of(given, members), counters.first()),
      alarms(lanes, given.name),
      messages(lanes, given.name, aborted),
      census(lanes, given.name) {
  piece_bytes = lanes.slot_bytes();
}

Communicator::State::~State() {
  if (!engine.is_open()) return;  // the memory that the farewell would be sent from is gone, and all peers know
  if (!joined) return;            // nobody counts on it yet, and it may try again under this name
  lanes.flush(Clock::now() + std::chrono::seconds(1));
  // Who has not heard yet why the communicator is over, and may hear first that this rank leaves, hears it with that.
  Alarm farewell;
  if (!failure.status)
    farewell = {failure.rank, failure.operation, failure.status.code(), false, failure.phase, failure.status.message()};
  farewell.leaves = true;
  // Who was too busy to hear of the abort hears of it now, and not that this rank has left.
  alarms.raise(aborted.load(std::memory_order_acquire) ? own_abort() : farewell);
}

// One of the parent's members may have heard of a dead rank where this one did not: it never comes here.
Status Communicator::State::look_while_joining() {
  if (parent != nullptr)
    if (Status status = parent->hear(); !status) return status;
  if (stop.stop_requested()) return {ErrorCode::cancelled, "joining was stopped"};
  if (const auto alarm = alarms.look()) return {alarm->code, alarm->text};
  for (int other = 0; other < size(); ++other)
    if (const Status& why = alarms.gone(other); !why) return why.with_context(name_of(other));
  return {};
}

Result<std::unique_ptr<Communicator::State>> Communicator::State::join(Engine& engine, std::vector<Member> members,
                                                                       int rank, CommunicatorOptions options,
                                                                       std::shared_ptr<Family> shared, Time deadline,
                                                                       State* parent, const std::stop_token& stop) {
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i].name = member_name(static_cast<int>(i), members[i].address);
  auto counters = CounterRange::take(engine, options.name, shared->next_counter,
                                     Lanes::immediates(static_cast<int>(members.size())), shared->counters_chosen);
  if (!counters) return counters.status().with_context("CommunicatorOptions");
  shared->next_counter = counters->end();
  auto state =
      std::make_unique<State>(engine, std::move(members), rank, options, std::move(shared), std::move(*counters));
  state->parent = parent;
  state->stop = stop;
  Status status = state->join_members("collectives/" + options.name, deadline);
  if (!status) {
    // Who waits for this rank need not wait until its deadline. A call of create() may be tried again, under this name.
    if (parent != nullptr && state->failure.status)
      state->alarms.raise({rank, 0, status.code(), false, "joining",
                           fmt::format("{} gave up joining: {}", state->name_of(rank), status.message())});
    return status;
  }
  state->parent = nullptr;
  state->stop = {};
  return state;
}

Status Communicator::State::join_members(const std::string& zone, Time deadline) {
  if (Status status = lanes.open(zone); !status) return status;
  std::vector<Words> words(lanes.members().size(), lanes.words());
  // Alarms from here on, so that nobody waits for a rank that waits for a dead one.
  if (Status status = alarms.open(); !status) return status;
  const auto look = [this] { return look_while_joining(); };
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank())
      if (Status status = lanes.meet(peer, zone, deadline, words[static_cast<std::size_t>(peer)], look); !status)
        return status;
  joined = true;
  progress.open(options.name, rank(), words);
  order = order_of(words);
  groups = groups_of(words);
  lanes.set_spin(kSpin, !has_core(rank(), words));
  agreed = size() == 1;
  if (agreed) return {};

  return agree_on_links(words, deadline);
}

// The first operation: all have joined, and all know whether they share a host, and whether all that do have mapped
// each other's zones; and who is the fastest by rank 0's table.
Status Communicator::State::agree_on_links(const std::vector<Words>& words, Time deadline) {
  const std::vector<int> neighbours = neighbours_of(rank(), words);
  const bool one_host = static_cast<int>(neighbours.size()) + 1 == size();
  const bool linked = (one_host || are_apart(words)) && all_near(lanes, neighbours);
  const bool mapped = linked && lanes.map(neighbours, std::min(deadline, after(Clock::now(), kMapping)));
  HostWays::Offer offer;
  if (rank() == 0) offer = ways.look(engine, words, lanes.slot_bytes());
  struct All {  // the least of each byte
    std::uint8_t closeness, over;
  } all{static_cast<std::uint8_t>(mapped ? 2 : linked && one_host ? 1 : 0), offer.over};
  Collective agree;
  agree.kind = CollectiveKind::all_reduce;
  agree.algorithm = Algorithm::recursive_doubling;
  agree.input = agree.output = &all;
  agree.count = sizeof all;
  agree.reduction = Reduction::min;
  agree.timeout = std::max(until(deadline), Timeout{1000});
  if (const Status met = run(agree); !met) return met.with_context("joining");
  offer.over = all.over;
  if (all.over < HostWays::kNoTable) {
    const Collective share{.kind = CollectiveKind::broadcast,
                           .input = &offer.fastest,
                           .output = &offer.fastest,
                           .count = sizeof offer.fastest,
                           .algorithm = Algorithm::binomial,
                           .timeout = agree.timeout};
    if (const Status met = run(share); !met) return met.with_context("joining");
  }
  agreed = true;
  ways.take(offer, 2 * all.closeness + (one_host ? 1 : 0));
  if (one_host && all.closeness != 0 && options.slot_bytes == 0) piece_bytes = std::min(piece_bytes, kUsualSlot);
  if (all.closeness == 2) {
    lanes.use_mapped();
    spare_.reset();  // of the other way
    if (!one_host && !groups.empty()) near = near_of(groups);
    const std::uint32_t near_piece =
        options.slot_bytes == 0 ? std::min(piece_bytes, mapped_piece(one_host ? size() : near.most)) : piece_bytes;
    near.piece = near_piece;
    if (one_host) {
      costs = kMapped;
      piece_bytes = near_piece;
      return {};
    }
  } else {
    lanes.unmap_all();
  }
  if (all.closeness == 1) costs = kSameHost;
  sends_in_place = all.closeness == 1 || registers_cheaply(engine);
  return {};
}

Result<Communicator> Communicator::grow(std::span<const std::string> added, const CommunicatorOptions& options) {
  if (state_ == nullptr) return State::moved();
  if (Status status = check_options(options); !status) return status.with_context("CommunicatorOptions");
  if (Status status = state_->check_open(); !status) return status.with_context("grow");
  const Time deadline = after(Clock::now(), options.timeout);
  std::vector<Member> members = state_->lanes.members();
  for (const std::string& address : added) {
    const std::string name = member_name(static_cast<int>(members.size()), address);
    const auto peer = meet_engine(state_->engine, address, deadline, {});
    if (!peer) return peer.status().with_context(name).with_context("grow");
    members.push_back({*peer, address, name});
  }
  auto state = State::join(state_->engine, std::move(members), rank(), options, state_->family, deadline, state_.get());
  if (!state) return state.status().with_context("grow");
  return Communicator(std::move(*state));
}

Result<Communicator> Communicator::create(Engine& engine, int rank, std::span<const std::string> addresses,
                                          const CommunicatorOptions& options) {
  return State::create(engine, nullptr, rank, addresses, options, after(Clock::now(), options.timeout), {});
}

Result<Communicator> Communicator::State::create(Engine& engine, std::shared_ptr<Engine> kept, int rank,
                                                 std::span<const std::string> addresses,
                                                 const CommunicatorOptions& options, Time deadline,
                                                 const std::stop_token& stop) {
  if (Status status = check_options(options); !status) return status.with_context("CommunicatorOptions");
  if (addresses.empty() || rank < 0 || static_cast<std::size_t>(rank) >= addresses.size())
    return Status(ErrorCode::invalid_argument,
                  fmt::format("rank {} of {}: there is no such rank", rank, addresses.size()));
  auto family = std::make_shared<Family>();
  family->engine = std::move(kept);
  family->next_counter = first_counter_of(options);
  family->counters_chosen = options.first_immediate != 0;
  std::vector<Member> members(addresses.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].address = addresses[i];
    if (static_cast<int>(i) == rank) continue;
    auto peer = meet_engine(engine, addresses[i], deadline, stop);
    if (!peer) return peer.status().with_context(member_name(static_cast<int>(i), addresses[i]));
    members[i].peer = *peer;
  }
  auto state = join(engine, std::move(members), rank, options, family, deadline, nullptr, stop);
  if (!state) return state.status();
  return Communicator(std::move(*state));
}

}  // namespace fairway

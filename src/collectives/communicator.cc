#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fairway/collectives.h"

#include "collectives/nccl/way_table.h"
#include "collectives/state.h"

namespace fairway {

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Status Communicator::State::moved() {
  return {ErrorCode::closed, "this Communicator was moved from: use the one that it was moved to"};
}

int Communicator::rank() const {
  if (state_ == nullptr) return -1;
  return state_->rank();
}
int Communicator::size() const {
  if (state_ == nullptr) return 0;
  return state_->size();
}
Result<OperationId> Communicator::start(const Collective& operation) {
  if (state_ == nullptr) return State::moved();
  return state_->start(operation);
}
bool Communicator::test(OperationId operation) {
  if (state_ == nullptr) return true;
  return state_->test(operation);
}
Status Communicator::wait(OperationId operation) {
  if (state_ == nullptr) return State::moved();
  return state_->wait(operation);
}
Status Communicator::run(const Collective& operation) {
  if (state_ == nullptr) return State::moved();
  return state_->run(operation);
}
Status Communicator::use_gpu(int gpu, const GpuOptions& options) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.use_gpu(gpu, options).with_context("use_gpu");
}
Result<WindowId> Communicator::register_window(void* memory, std::uint64_t size_bytes) {
  if (state_ == nullptr) return State::moved();
  auto made = state_->gpu.register_window(memory, size_bytes);
  return made ? std::move(made) : Status(made.status()).with_context("register_window");
}
Status Communicator::deregister_window(WindowId window) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.deregister_window(window).with_context("deregister_window");
}
Status Communicator::stream_run(const Collective& operation, void* stream) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.run(operation, stream);
}
Status Communicator::stream_messages(std::span<const StreamMessage> group, void* stream,
                                     std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.run_messages(group, stream, timeout);
}
Status Communicator::stream_status() {
  if (state_ == nullptr) return State::moved();
  return state_->gpu.status();
}
Result<std::string> Communicator::measure_gpu(std::size_t most_bytes, bool compare) {
  if (state_ == nullptr) return State::moved();
  if (Status open = state_->check_open(); !open) return open.with_context("measure_gpu");
  return collectives::measure_ways(*this, state_->gpu, most_bytes, compare);
}
std::string Communicator::explain_stream(const Collective& operation, bool captured) const {
  if (state_ == nullptr) return State::moved().to_string();
  return state_->gpu.explain(operation, captured);
}
std::shared_ptr<Engine> Communicator::engine() const {
  if (state_ == nullptr) return nullptr;
  if (state_->family->engine) return state_->family->engine;
  return {std::shared_ptr<Engine>(), &state_->engine};  // the caller's
}
std::string Communicator::address(int rank) const {
  if (rank < 0 || rank >= size()) return {};
  return state_->lanes.members()[static_cast<std::size_t>(rank)].address;
}
void Communicator::abort() {
  if (state_ == nullptr) return;
  state_->abort();
}
const CollectiveFailure& Communicator::failure() const {
  static const CollectiveFailure kMoved = [] {
    CollectiveFailure moved;
    moved.status = State::moved();
    return moved;
  }();
  if (state_ == nullptr) return kMoved;
  if (state_->aborted) (void)state_->check_open();
  return state_->failure;
}
Algorithm Communicator::chosen(const Collective& operation) const {
  if (state_ == nullptr) return Algorithm::automatic;
  return state_->chosen(operation);
}
std::string Communicator::explain(const Collective& operation) const {
  if (state_ == nullptr) return State::moved().to_string();
  return state_->explain(operation);
}
Result<std::string> Communicator::measure(std::size_t most_bytes, bool compare) {
  if (state_ == nullptr) return State::moved();
  if (Status open = state_->check_open(); !open) return open.with_context("measure");
  const auto agree = [](void* gpu, const Status& own) {
    return static_cast<collectives::GpuCalls*>(gpu)->all_say(own);
  };
  auto made = collectives::measure_hosts(*this, state_->ways, state_->near.groups > 1, most_bytes, compare, agree,
                                         &state_->gpu);
  return made ? std::move(made) : Status(made.status()).with_context("measure");
}

using collectives::Messages;

Result<MessageId> Communicator::start_send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag,
                                           std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  if (state_->aborted) return state_->check_open().with_context("send");
  return state_->messages.start(
      {Messages::Way::send, const_cast<void*>(data), size_bytes, to, tag, state_->timeout_of(timeout)});
}
Result<MessageId> Communicator::start_receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag,
                                              std::optional<Timeout> timeout) {
  if (state_ == nullptr) return State::moved();
  if (state_->aborted) return state_->check_open().with_context("receive");
  return state_->messages.start({Messages::Way::receive, data, size_bytes, from, tag, state_->timeout_of(timeout)});
}
bool Communicator::test(MessageId message) {
  if (state_ == nullptr) return true;
  return state_->messages.test(message);
}
Status Communicator::wait(MessageId message, std::size_t* received) {
  if (state_ == nullptr) return State::moved();
  return state_->messages.wait(message, received);
}

Status Communicator::send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag,
                          std::optional<Timeout> timeout) {
  const auto id = start_send(data, size_bytes, to, tag, timeout);
  return id ? wait(*id) : id.status();
}
Status Communicator::receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag, std::size_t* received,
                             std::optional<Timeout> timeout) {
  const auto id = start_receive(data, size_bytes, from, tag, timeout);
  return id ? wait(*id, received) : id.status();
}

// Communicators made of communicators.

using namespace collectives;  // NOLINT(google-build-using-namespace)

Result<Communicator> Communicator::split(int color, int key) {
  if (state_ == nullptr) return State::moved();
  if (Status status = state_->check_open(); !status) return status.with_context("split");
  State& state = *state_;
  struct Choice {
    std::int32_t color, key;
  };
  const Choice mine{color, key};
  std::vector<Choice> all(static_cast<std::size_t>(size()));
  Collective gather;
  gather.kind = CollectiveKind::all_gather;
  gather.input = &mine;
  gather.output = all.data();
  gather.count = 2;
  gather.type = DataType::i32;
  if (Status status = run(gather); !status) return status.with_context("split");
  if (color < 0) return Status(ErrorCode::not_found, "split: a negative color is in no group");
  std::vector<int> group;
  for (int i = 0; i < size(); ++i)
    if (all[static_cast<std::size_t>(i)].color == color) group.push_back(i);
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  std::vector<Member> members;
  int place = 0;
  for (const int old : group) {
    if (old == rank()) place = static_cast<int>(members.size());
    members.push_back(state.lanes.members()[static_cast<std::size_t>(old)]);
  }
  CommunicatorOptions options = state.options;
  options.name += fmt::format("/{}.{}", state.started, color);
  const Time deadline = after(Clock::now(), options.timeout);
  auto made = State::join(state.engine, std::move(members), place, options, state.family, deadline, &state);
  if (!made) return made.status().with_context("split");
  return Communicator(std::move(*made));
}

Result<Communicator> Communicator::shrink(std::span<const int> without) {
  if (state_ == nullptr) return State::moved();
  if (Status status = state_->check_open(); !status) return status.with_context("shrink");
  State& state = *state_;
  Alive alive(static_cast<std::size_t>(size()), 1);
  for (const int rank : without) {
    if (rank < 0 || rank >= size() || rank == this->rank())
      return Status(ErrorCode::invalid_argument, fmt::format("shrink: without {}: not another rank", rank));
    alive[static_cast<std::size_t>(rank)] = 0;
  }
  (void)state.alarms.look();
  for (int rank = 0; rank < size(); ++rank)
    if (rank != this->rank() && !state.alarms.gone(rank)) alive[static_cast<std::size_t>(rank)] = 0;
  CommunicatorOptions options = state.options;
  const auto agreed = state.census.take(alive, after(Clock::now(), options.timeout));
  if (!agreed) return agreed.status().with_context("shrink");
  options.name += fmt::format("#{}", *agreed);
  std::vector<Member> members;
  int place = 0;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    if (alive[i] == 0) continue;
    if (static_cast<int>(i) == rank()) place = static_cast<int>(members.size());
    members.push_back(state.lanes.members()[i]);
  }
  const Time deadline = after(Clock::now(), options.timeout);
  auto made = State::join(state.engine, std::move(members), place, options, state.family, deadline);
  if (!made) {
    state.census.give_up(alive);
    return made.status().with_context("shrink");
  }
  return Communicator(std::move(*made));
}

// Who is at fault when a peer is lost: the peer, or this rank, which may be cut off from all others.

namespace {

constexpr Timeout kAskNext{10'000};  // ranks that have not answered by then do not at once: others are asked, too
constexpr Timeout kPauseInDoubt{500};
constexpr int kAskFirst = 3, kAskMore = 4;  // times as many

}  // namespace

// Peers that fell silent at one time are lost within a quarter of the engine's peer_timeout: heartbeats come so often.
// Who has lost this rank has had such a doubt itself before it told the others.
void Communicator::State::begin_doubt(Running& running, const Fault& fault) {
  const Timeout most = engine.peer_timeout();
  const Time now = Clock::now();
  if (!running.waited) set_deadline(running, now);
  doubt_ = Doubt{fault, after(now, fault.status.code() == ErrorCode::stale_incarnation ? most : most / 2)};
  look_in_doubt(running, false);
}

void Communicator::State::ask_more() {
  const int most = std::min(size() - 1, std::max(kAskFirst, doubt_->asked * kAskMore));
  Words words;
  Status status;
  for (int behind = 1; behind <= most; ++behind) {
    const int other = (rank() + behind) % size();
    if (!alarms.gone(other) || other == doubt_->fault.rank) continue;
    const bool answered = lanes.read(other, words, status);
    if (behind > doubt_->asked || !answered) lanes.ask(other);  // an answer of before says nothing
  }
  doubt_->asked = most;
}

std::vector<Hearing> Communicator::State::hearings() {
  std::vector<Hearing> found(static_cast<std::size_t>(size()));
  const auto lost_as = [](ErrorCode code) {
    if (code == ErrorCode::closed || code == ErrorCode::cancelled) return Hearing::left;
    return code == ErrorCode::stale_incarnation ? Hearing::lost_us : Hearing::lost;
  };
  for (int other = 0; other < size(); ++other) {
    Hearing& one = found[static_cast<std::size_t>(other)];
    const int behind = (other - rank() + size()) % size();
    Words words;
    Status status;
    if (other == doubt_->fault.rank) {
      one = lost_as(alarms.gone(other) ? doubt_->fault.status.code() : alarms.gone(other).code());
    } else if (!alarms.gone(other)) {
      one = lost_as(alarms.gone(other).code());
    } else if (behind <= doubt_->asked && lanes.read(other, words, status) && status) {
      one = Hearing::answers;
    }
  }
  return found;
}

void Communicator::State::look_in_doubt(Running& running, bool may_wait) {
  if (!hear(running.number())) return doubt_.reset();
  const Time now = Clock::now();
  if (now >= doubt_->asks_next) {
    (void)engine.poll({});
    ask_more();
    doubt_->asks_next = now + kAskNext;
  }
  std::vector<std::string> names;
  for (const Member& member : lanes.members()) names.push_back(member.name);
  const bool is_over = now >= doubt_->until || stop.stop_requested();
  auto found = blame_lost(hearings(), names, rank(), doubt_->fault.rank, is_over);
  if (!found && now >= running.deadline)
    found = Blame{-1, "no other rank has answered since: this one may be cut off from them"};
  if (!found) return may_wait ? lanes.pause(kPauseInDoubt) : void();
  Fault fault = std::move(doubt_->fault);
  doubt_.reset();
  if (!found->text.empty()) {
    const std::string& lost = names[static_cast<std::size_t>(fault.rank)];
    std::string what = fault.status.message();
    if (what.find(lost) == std::string::npos) what = lost + ": " + what;
    const ErrorCode code = found->rank == rank() ? ErrorCode::link_failed : fault.status.code();
    fault = {found->rank, Status(code, found->text + ": " + what)};
  }
  fail_by(running, fault);
}

}  // namespace fairway

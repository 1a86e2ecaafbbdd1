#include "victim.h"

#include <algorithm>

#include "engine/open.h"
#include "engine/tables/regions.h"

namespace fairway::hostile {

namespace {

sim::SimulationOptions quiet(std::uint64_t seed) {
  sim::SimulationOptions options;
  options.seed = seed;
  return options;
}

constexpr std::size_t kGap = Victim::kRegion;
constexpr std::size_t kOwn = kGap + 4 * Victim::kRegion;         // the region closed to peers
constexpr std::size_t kHidden = kOwn + 3 * Victim::kRegion / 4;  // the secret, to the region's end
constexpr std::size_t kHiddenBytes = Victim::kRegion / 4;

// Within the region closed to peers: where the victim's own transfers put bytes.
constexpr std::size_t kReadAt = 512, kReadBytes = 100;
constexpr std::size_t kSmallAt = 1024, kSmallBytes = 256;
constexpr std::size_t kLargeAt = 1280, kLargeBytes = 1700;

}  // namespace

Victim::Victim(const Options& options) : simulation_(quiet(7)), words_(8 * Victim::kRegion / sizeof(std::uint64_t)) {
  script_->hold = options.hold;
  script_->with_writes = options.with_writes;
  std::fill_n(memory(), 8 * kRegion, kPaint);
  std::fill_n(memory() + kHidden, kHiddenBytes, kSecret);
  own_ = &simulation_.add_host();
  theirs_ = &simulation_.add_host();
  EngineOptions mine;
  mine.name = "victim";
  mine.listen = own_->address() + ":7000";
  mine.job_key = "key";
  mine.max_peers = 4;
  mine.max_transfers = 64;
  mine.max_counters = 8;
  mine.max_regions = 16;
  mine.max_remote_regions = 16;
  mine.notifications_per_peer = 4;
  mine.unexpected_bytes_per_peer = 4096;
  mine.prove_paths = false;
  auto opened = EngineAccess::open(mine, own_->runtime(), [&](transport::RegionTable&, Runtime&) {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<ScriptedTransport>(script_));
    return transports;
  });
  if (!opened) return;
  engine_.emplace(std::move(*opened));
  const Access access[] = {Access::write | Access::atomic, Access::read, Access::none};
  for (std::size_t i = 0; i < regions_.size(); ++i)
    regions_[i] = *engine_->register_memory(memory() + kGap + 2 * i * kRegion, kRegion, access[i]);
  control::Options theirs;
  theirs.name = "impostor";
  theirs.listen = theirs_->address() + ":7000";
  theirs.job_key = "key";
  control_ = std::move(*control::open_control(theirs, theirs_->runtime(), *this));
  (void)control_->connect(engine_->address(), 1, kSecond);
  simulation_.run_until(simulation_.now() + kSecond, [&] { return up_; });
  settle(kMillisecond);
  if (!options.greet) return;
  message(engine::format(honest_hello()));
  settle(kMillisecond);
  std::array<PeerEvent, 8> events;
  const std::size_t count = engine_->poll_peer_events(events);
  for (std::size_t i = 0; i < count; ++i)
    if (events[i].kind == PeerEvent::Kind::up) peer_ = events[i].peer;
  if (options.transfers) start_transfers();
}

Victim::~Victim() {
  if (engine_) (void)close();
  if (control_) control_->close();
}

engine::Hello Victim::honest_hello() const {
  engine::Description scratch;
  scratch.incarnation = control_->incarnation();
  scratch.region = {0, 1};
  scratch.size_bytes = 1 << 20;
  scratch.access = Access::read | Access::write;
  engine::Hello hello;
  hello.event_credits = 8;
  hello.record_bytes = 1024;
  hello.unexpected_bytes = 4096;
  hello.transports = {"loopback"};
  hello.scratch = engine::format_description(scratch);
  return hello;
}

void Victim::start(const Request& request) {
  auto job = std::make_unique<Job>();
  Request mine = request;
  mine.peer = peer_;
  mine.options.deliver = Deliver::to_callback;
  mine.options.user_data = job.get();
  mine.options.callback = [](const Completion&, void* user_data) { ++static_cast<Job*>(user_data)->completions; };
  const Submitted taken = engine_->submit(std::span(&mine, 1), std::span(&job->id, 1));
  if (taken.taken == 1) jobs_.push_back(std::move(job));
}

// One of each kind, so that the peer has something to lie about. Sources and sinks lie in the region closed to peers.
void Victim::start_transfers() {
  engine::Description theirs;
  theirs.incarnation = control_->incarnation();
  theirs.region = {5, 1};
  theirs.size_bytes = 1 << 20;
  theirs.access = Access::all;
  const auto imported = engine_->import_region(peer_, engine::format_description(theirs));
  if (!imported) return;
  remote_ = *imported;
  const auto local = [&](std::uint64_t offset, std::uint64_t length) {
    return Extent{{regions_[2].id, offset, length}, {remote_.id, 0}};
  };
  Request request;
  request.layout = local(0, 256);
  request.operation = Operation::write;
  start(request);
  request.options.checksum = true;
  start(request);
  request.options = {};
  request.options.notify.kind = NotifyKind::event;
  start(request);
  request.options = {};
  request.operation = Operation::read;
  request.layout = local(kReadAt, kReadBytes);
  start(request);
  request.operation = Operation::send;
  request.tag = 1;
  request.layout = local(0, 64);
  start(request);
  request.layout = local(0, kLargeBytes);
  start(request);
  request.operation = Operation::receive;
  request.layout = local(kSmallAt, kSmallBytes);
  start(request);
  request.tag = 2;
  request.layout = local(kLargeAt, kLargeBytes);
  start(request);
  request.operation = Operation::fetch_add;
  request.target = {remote_.id, 8};
  start(request);
  settle();
}

void Victim::record(std::span<const std::byte> bytes) {
  script_->inject(transport::EventKind::message, bytes);
  settle();
}

void Victim::message(std::span<const std::byte> bytes) {
  if (up_) (void)control_->send(session_, bytes);
  settle(kMillisecond);
}

void Victim::event(transport::EventKind kind, std::uint64_t value) {
  script_->inject(kind, {}, value);
  settle();
}

void Victim::settle(Time time) {
  simulation_.run_until(simulation_.now() + time);
  if (!engine_) return;
  std::array<PeerEvent, 8> events;
  for (std::size_t count = engine_->poll_peer_events(events); count > 0; count = engine_->poll_peer_events(events))
    for (std::size_t i = 0; i < count; ++i) {
      if (events[i].kind == PeerEvent::Kind::up) peer_ = events[i].peer;
      if (events[i].kind == PeerEvent::Kind::down) down_ = events[i].reason;
    }
}

std::string Victim::broken() const {
  const auto* bytes = reinterpret_cast<const std::byte*>(words_.data());
  // Open are the writable region, and of the closed one where the victim itself reads and receives.
  const auto within = [](std::size_t i, std::size_t begin, std::size_t length) {
    return i >= begin && i - begin < length;
  };
  for (std::size_t i = 0; i < 8 * kRegion; ++i) {
    const bool open = within(i, kGap, kRegion) || within(i, kOwn + kReadAt, kReadBytes) ||
                      within(i, kOwn + kSmallAt, kSmallBytes) || within(i, kOwn + kLargeAt, kLargeBytes);
    if (!open && bytes[i] != (within(i, kHidden, kHiddenBytes) ? kSecret : kPaint))
      return "byte " + std::to_string(i) + " changed";
  }
  const std::array<std::byte, 4> secret{kSecret, kSecret, kSecret, kSecret};
  for (const auto& sent : script_->messages)
    if (std::search(sent.begin(), sent.end(), secret.begin(), secret.end()) != sent.end()) return "it told the secret";
  for (const auto& job : jobs_)
    if (job->completions > 1) return "a transfer completed " + std::to_string(job->completions) + " times";
  const ErrorCode code = down_.code();
  if (code != ErrorCode::ok && code != ErrorCode::protocol_error && code != ErrorCode::closed &&
      code != ErrorCode::link_failed && code != ErrorCode::peer_dead)
    return "it is down: " + down_.to_string();
  return {};
}

std::string Victim::close() {
  std::string what = broken();
  engine_->close();
  if (what.empty()) what = broken();
  for (const auto& job : jobs_)
    if (what.empty() && job->completions != 1)
      what = "a transfer completed " + std::to_string(job->completions) + " times after close()";
  return what;
}

}  // namespace fairway::hostile

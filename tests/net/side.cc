#include "net/side.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "support/open_engine.h"

namespace fairway::net {
namespace {

constexpr std::byte kUntouched{0xa5};

// Empty when all is as it should be. The engine's thread writes what this reads, in an order that both take from the
// other process, where ThreadSanitizer does not see it.
__attribute__((no_sanitize("thread"))) std::string compare(std::span<const std::byte> memory, std::uint64_t seed,
                                                           std::uint64_t length) {
  const std::byte* region = memory.data() + kGuard;
  for (std::uint64_t i = 0; i < length; ++i)
    if (region[i] != pattern(seed, i)) return fmt::format("byte {} is wrong", i);
  for (std::uint64_t i = 0; i < kGuard; ++i) {
    if (memory[i] != kUntouched) return fmt::format("{} bytes before the region: touched", kGuard - i);
    if (region[kBytes + i] != kUntouched) return fmt::format("{} bytes behind the region: touched", i);
  }
  return {};
}

// Answers questions until the test is gone.
void serve(ChildProcess::Line& line, const EngineOptions& options, const std::function<void()>& enter) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when the test crashes
  enter();
  auto engine = open_engine(options);
  if (!engine) return line.write("failed " + engine.status().to_string());
  constexpr std::uint64_t kAll = kBytes + 2 * kGuard;
  void* mapped = ::mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return line.write("failed no memory");
  const std::span memory(static_cast<std::byte*>(mapped), kAll);
  std::fill(memory.begin(), memory.end(), kUntouched);
  const auto region = engine->register_memory(memory.data() + kGuard, kBytes, Access::all);
  if (!region || !engine->publish("memory", *region)) return line.write("failed no region");
  line.write(engine->address());
  for (std::string question = line.read(); !question.empty(); question = line.read()) {
    std::istringstream words(question);
    std::string verb;
    std::uint64_t first = 0, second = 0;
    words >> verb >> first >> second;
    if (verb == "check") {
      line.write("=" + compare(memory, first, second));
    } else if (verb == "counter") {
      line.write(engine->wait_counter(static_cast<std::uint32_t>(first), second, kHang) ? "=yes" : "=no");
    } else {
      line.write("=what?");
    }
  }
}

}  // namespace

std::byte pattern(std::uint64_t seed, std::uint64_t at) {
  return static_cast<std::byte>((at * 131 + (at >> 8) * 29 + seed * 197) >> 1);
}

EngineOptions options_of(const std::string& name, const std::string& listen, std::chrono::milliseconds peer_timeout) {
  EngineOptions options;
  options.name = name;
  options.listen = listen;
  options.job_key = "the key of this test's job";
  options.peer_timeout = peer_timeout;
  options.transports = {"tcp"};
  return options;
}

Far::Far(const Host& host, const EngineOptions& options) : Far(options, [&host] { host.enter(); }) {}

Far::Far(const EngineOptions& options, const std::function<void()>& first)
    : process_([&](ChildProcess::Line& line) { serve(line, options, first); }) {
  const std::string said = process_.read();
  (said.find("failed ") == 0 || said.empty() ? failure : address) = said.empty() ? "failed silently" : said;
}

std::string Far::ask(const std::string& question) {
  process_.write(question);
  const std::string answer = process_.read();
  return answer.empty() ? "the far process is gone" : answer.substr(1);
}

std::string Far::check(std::uint64_t seed, std::uint64_t length) {
  return ask(fmt::format("check {} {}", seed, length));
}

bool Far::counted(std::uint32_t immediate, std::uint64_t at_least) {
  return ask(fmt::format("counter {} {}", immediate, at_least)) == "yes";
}

Near::Near(const EngineOptions& options) {
  auto made = open_engine(options);
  opened = made.status();
  if (!made) return;
  engine = std::make_unique<Engine>(std::move(*made));
  ours = *engine->allocate(kBytes, Access::none);
  back = *engine->allocate(kBytes, Access::none);
}

Status Near::meet(const std::string& address, Timeout timeout) {
  const auto met = engine->connect(address, timeout);
  if (!met) return met.status();
  peer = *met;
  const auto found = engine->lookup(peer, "memory", timeout);
  if (found) remote = *found;
  return found.status();
}

void Near::fill(std::uint64_t seed) {
  for (std::uint64_t i = 0; i < kBytes; ++i) ours.address[i] = pattern(seed, i);
}

Result<TransferId> Near::write(std::uint64_t length, const RequestOptions& options, std::uint64_t at) {
  return engine->write(peer, Extent{{ours.id, at, length}, {remote.id, at}}, options);
}

Result<TransferId> Near::read(std::uint64_t length, const RequestOptions& options) {
  return engine->read(peer, Extent{{back.id, 0, length}, {remote.id, 0}}, options);
}

Status Near::finish(const Result<TransferId>& id, Timeout within) {
  if (!id) return id.status();
  const auto completion = engine->wait(*id, within);
  return completion ? completion->status : completion.status();
}

void Near::verify(Far& far, std::uint64_t seed) {
  const auto done = [&](const Result<TransferId>& id) {
    const Status status = finish(id);
    ASSERT_TRUE(status) << status.to_string();
  };
  fill(seed);
  RequestOptions told;
  told.notify.kind = NotifyKind::counter;
  told.notify.immediate = static_cast<std::uint32_t>(1000 + seed);
  ASSERT_NO_FATAL_FAILURE(done(write(kBytes, told)));
  EXPECT_TRUE(far.counted(told.notify.immediate, 1));
  EXPECT_EQ(far.check(seed, kBytes), "");
  std::fill(back.address, back.address + kBytes, std::byte{0});
  RequestOptions summed;
  summed.checksum = true;
  ASSERT_NO_FATAL_FAILURE(done(read(kBytes, summed)));
  EXPECT_EQ(std::memcmp(ours.address, back.address, kBytes), 0);

  constexpr std::uint64_t kPage = 4096, kPages = 512;
  std::vector<std::uint64_t> straight(kPages), mixed(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    straight[i] = i;
    mixed[i] = i * 307 % kPages;
  }
  fill(seed + 1);
  ASSERT_NO_FATAL_FAILURE(done(engine->write(peer, Paged{ours.id, remote.id, kPage, kPage, kPage, straight, mixed})));
  ASSERT_NO_FATAL_FAILURE(done(engine->read(peer, Paged{back.id, remote.id, kPage, kPage, kPage, straight, mixed})));
  EXPECT_EQ(std::memcmp(ours.address, back.address, kPage * kPages), 0);
  const auto added = engine->fetch_add(peer, {remote.id, 64}, 5);
  ASSERT_NO_FATAL_FAILURE(done(added));
}

std::optional<PeerEvent> Near::next(PeerEvent::Kind kind, Timeout within) {
  const auto until = std::chrono::steady_clock::now() + within;
  std::array<PeerEvent, 1> events;
  for (;;) {
    while (engine->poll_peer_events(events) == 1)
      if (events[0].kind == kind) return events[0];
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero() || !engine->wait_peer_event(std::chrono::duration_cast<Timeout>(left))) return std::nullopt;
  }
}

std::vector<LinkMetrics> Near::links(bool up_only) const {
  std::vector<LinkMetrics> found;
  for (const LinkMetrics& link : engine->metrics().links)
    if (link.peer == peer && (link.up || !up_only)) found.push_back(link);
  return found;
}

std::string Near::links_text() const {
  std::string text;
  for (const LinkMetrics& link : links()) text += (text.empty() ? "" : " ") + link.name;
  return text;
}

std::uint64_t traffic(const Host& host, const std::string& name) {
  // Two lines with the letters RX and TX, each followed by one of figures, bytes first.
  std::istringstream lines(host.must("ip -statistics link show dev " + name));
  std::uint64_t sum = 0;
  bool figures = false;
  for (std::string line; std::getline(lines, line);) {
    if (figures) sum += std::stoull(line);
    figures = line.find("RX:") != std::string::npos || line.find("TX:") != std::string::npos;
  }
  return sum;
}

}  // namespace fairway::net

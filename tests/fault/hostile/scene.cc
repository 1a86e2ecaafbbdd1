#include "scene.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "support/open_engine.h"
#include "support/sanitized.h"

namespace fairway::hostile {
namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void stand_by(ChildProcess::Line& line, const std::string& transport) {
  Keyed met(transport, line.read());
  line.write(met.why.to_string());
  for (std::string word; !(word = line.read()).empty();) {
    std::vector<double> times;
    Status status;
    const auto end = Clock::now() + std::chrono::milliseconds(std::stoi(word));
    while (status && Clock::now() < end) {
      const auto start = Clock::now();
      status = met.write();
      times.push_back(us_since(start));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    std::sort(times.begin(), times.end());
    std::ostringstream text;
    text << times[times.size() / 2] << ' ' << times[times.size() * 99 / 100] << ' ' << status.to_string();
    line.write(text.str());
  }
}

}  // namespace

EngineOptions options_of(const std::string& name, const std::string& transport) {
  EngineOptions options;
  options.name = name;
  options.transports = {transport};
  options.job_key = kKey;
  return options;
}

Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

Keyed::Keyed(const std::string& transport, const std::string& address, std::chrono::milliseconds timeout) {
  EngineOptions options = options_of("peer", transport);
  options.peer_timeout = timeout;
  auto opened = open_engine(options);
  if (!(why = opened.status())) return;
  engine = std::make_unique<Engine>(std::move(*opened));
  const auto met = engine->connect(address, kSoon);
  if (!(why = met.status())) return;
  peer = *met;
  const auto found = engine->lookup(peer, "memory", kSoon);
  if (!(why = found.status())) return;
  remote = *found;
  const auto made = engine->allocate(kBytes, Access::all);
  if (!(why = made.status())) return;
  ours = *made;
  why = write();
}

Status Keyed::write(std::uint64_t size) {
  return finish(*engine, engine->write(peer, Extent{{ours.id, 0, size}, {remote.id, 0}}));
}

Scene::Scene(const std::string& transport, const Attack& attack)
    : transport_(transport),
      bystander_([transport](ChildProcess::Line& line) { stand_by(line, transport); }),
      late_([transport](ChildProcess::Line& line) {
        Keyed met(transport, line.read());
        line.write(met.why.to_string());
      }),
      attacker_([attack](ChildProcess::Line& line) {
        // Of low priority, so that any harm to the others comes from the victim's own work. SCHED_IDLE would be too
        // low: beside busy processors it does not run for ten seconds and more, and then no attack has begun.
        ::setpriority(PRIO_PROCESS, 0, 19);
        const std::string address = line.read();
        if (!address.empty()) attack(line, address);
        line.read();
      }) {
  auto opened = open_engine(options_of("victim", transport));
  if (!opened) {
    ADD_FAILURE() << opened.status().to_string();
    return;
  }
  victim_ = std::make_unique<Engine>(std::move(*opened));
  const auto memory = victim_->allocate(kBytes, Access::all);
  EXPECT_TRUE(memory && victim_->publish("memory", *memory));
  if (memory) memory_ = memory->id;
  bystander_.write(victim_->address());
  EXPECT_EQ(bystander_.read(), Status().to_string());
  attacker_.write(victim_->address());
}

Scene::~Scene() {
  attacker_.kill();
  bystander_.kill();
  late_.kill();
}

Scene::Times Scene::measure(int ms) {
  bystander_.write(std::to_string(ms));
  std::istringstream text(bystander_.read());
  Times times;
  text >> times.p50 >> times.p99;
  std::getline(text >> std::ws, times.status);
  EXPECT_EQ(times.status, Status().to_string()) << "the bystander's writes";
  return times;
}

void Scene::begin() {
  EXPECT_EQ(attacker_.read(), "there");
  quiet_ = measure(300);
  std::array<PeerEvent, 16> events;
  while (victim_->poll_peer_events(events) != 0) {
  }
  descriptors_ = descriptors();
  resident_ = resident_kib();
  attacker_.write(std::to_string(memory_.slot) + " " + std::to_string(memory_.generation));
}

void Scene::measure_bystander(const char* name, int ms) {
  const Times times = measure(ms);
  const auto grown = static_cast<long>(resident_kib()) - static_cast<long>(resident_);
  const auto more = static_cast<long>(descriptors()) - static_cast<long>(descriptors_);
  std::printf("| %s | %s | %.0f / %.0f | %.0f / %.0f | %.1f | %+ld | %+ld |\n", transport_.c_str(), name, quiet_.p50,
              quiet_.p99, times.p50, times.p99, times.p99 / quiet_.p99, more, grown);
  // AddressSanitizer keeps what was freed, up to 256 MiB of it.
  EXPECT_LT(grown, kSanitized ? 256 * 1024 : 32 * 1024) << "KiB";
}

testing::AssertionResult Scene::ends_with_reason(const char* words, std::chrono::milliseconds most) {
  std::array<PeerEvent, 1> events;
  for (const auto end = Clock::now() + most; Clock::now() < end;) {
    while (victim_->poll_peer_events(events) == 1) {
      if (events[0].kind != PeerEvent::Kind::down) continue;
      const std::string reason = events[0].reason.to_string();
      std::printf("the session ends: %s\n", reason.c_str());
      return reason.find(words) != std::string::npos ? testing::AssertionSuccess()
                                                     : testing::AssertionFailure() << "ended with " << reason;
    }
    (void)victim_->wait_peer_event(std::chrono::milliseconds(50));
  }
  return testing::AssertionFailure() << "no session ended";
}

void Scene::expect_alive() {
  measure(50);
  late_.write(victim_->address());
  EXPECT_EQ(late_.read(), Status().to_string()) << "another peer";
}

}  // namespace fairway::hostile

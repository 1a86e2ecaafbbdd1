#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "net/host.h"
#include "process/control/child_process.h"

namespace fairway::net {

using control::ChildProcess;

inline constexpr Timeout kHang = std::chrono::seconds(40);  // whatever has not happened by then never will
inline constexpr std::uint64_t kBytes = 8u << 20;           // of the region that the far side publishes
inline constexpr std::uint64_t kGuard = 256 * 1024;         // of its memory on either side of that region

std::byte pattern(std::uint64_t seed, std::uint64_t at);

// Over tcp, with a job key (addresses beyond loopback need one), on that address.
EngineOptions options_of(const std::string& name, const std::string& listen,
                         std::chrono::milliseconds peer_timeout = std::chrono::milliseconds(5000));

// The engine of the other host, a process of its own. It publishes "memory", whose surroundings nobody may touch.
class Far {
 public:
  // Starts it; to be called while the test has one thread. `address` is empty, and `failure` says why, when it did not.
  Far(const Host& host, const EngineOptions& options);
  // On this host, and as `first` has made its process.
  explicit Far(
      const EngineOptions& options, const std::function<void()>& first = [] {});

  // Empty when the region holds pattern(seed) in [0, length) and its surroundings are what they were.
  std::string check(std::uint64_t seed, std::uint64_t length);
  std::string check_surroundings() { return check(0, 0); }
  bool counted(std::uint32_t immediate, std::uint64_t at_least);
  std::string ask(const std::string& question);
  void signal(int number) const { process_.signal(number); }
  void kill() { process_.kill(); }

  std::string address;
  std::string failure;

 private:
  ChildProcess process_;
};

// This side: an engine of the test's own process, its peer and memory.
class Near {
 public:
  explicit Near(const EngineOptions& options);

  // Connects and finds the far side's memory; again after the peer went.
  Status meet(const std::string& address, Timeout timeout = kHang);
  void fill(std::uint64_t seed);
  Result<TransferId> write(std::uint64_t length, const RequestOptions& options = {}, std::uint64_t at = 0);
  Result<TransferId> read(std::uint64_t length, const RequestOptions& options = {});
  // Its outcome; timed_out means that it hangs.
  Status finish(const Result<TransferId>& id, Timeout within = kHang);
  // Everything there and back, in several ways, compared on both sides. A test failure when something is wrong.
  void verify(Far& far, std::uint64_t seed);
  // The next event of that kind; nothing when none comes within the time.
  std::optional<PeerEvent> next(PeerEvent::Kind kind, Timeout within = kHang);
  [[nodiscard]] std::vector<LinkMetrics> links(bool up_only = true) const;
  [[nodiscard]] std::string links_text() const;  // names of those that are up

  std::unique_ptr<Engine> engine;
  Status opened;
  PeerId peer;
  RemoteRegion remote;
  Region ours, back;  // what is written, where reads arrive
};

// Two hosts and the cables between them. The test itself is in the first one.
class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Host::why_not(); !why.empty()) GTEST_SKIP() << why;
    here_.emplace();
    there_.emplace();
    cable(*here_, *there_, "one", 1);
    inside_.emplace(*here_);
  }
  void TearDown() override { inside_.reset(); }
  [[nodiscard]] const Host& here() const { return *here_; }
  [[nodiscard]] const Host& there() const { return *there_; }
  void second_cable() { cable(*here_, *there_, "two", 2); }

 private:
  std::optional<Host> here_, there_;
  std::optional<Inside> inside_;
};

// Bytes that came in and went out through an interface of the host.
std::uint64_t traffic(const Host& host, const std::string& name);

}  // namespace fairway::net

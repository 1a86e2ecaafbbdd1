#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "insides.h"
#include "process/control/child_process.h"

// Three roles: the victim, an engine of this process; a bystander, an engine of another process that writes to it all
// the time; and an attacker. Prints the figures for the rows of docs/security.md.
namespace fairway::hostile {

using control::ChildProcess;
inline constexpr Timeout kSoon = std::chrono::seconds(20);
inline constexpr std::uint64_t kBytes = 1u << 20;
constexpr const char* kKey = "the job's";

EngineOptions options_of(const std::string& name, const std::string& transport);
Status finish(Engine& engine, const Result<TransferId>& id);

// An engine that knows the key and has a working link to the victim. `why`: the error if it could not get one.
struct Keyed {
  Keyed(const std::string& transport, const std::string& address,
        std::chrono::milliseconds timeout = std::chrono::seconds(2));
  Status write(std::uint64_t size = 4096);

  std::unique_ptr<Engine> engine;
  PeerId peer;
  RemoteRegion remote;
  Region ours;
  Status why;
};

class Scene {
 public:
  // `attack` runs in its own process, which is killed at the end. It prints "there" when it is ready, waits for a line
  // (slot and generation of the victim's region) and attacks. It may print more afterwards (says()).
  using Attack = std::function<void(ChildProcess::Line&, const std::string& address)>;
  Scene(const std::string& transport, const Attack& attack);
  ~Scene();

  Engine& victim() { return *victim_; }
  void begin();
  std::string says() { return attacker_.read(); }
  void tell(const std::string& words) { attacker_.write(words); }
  // Measures the bystander's writes for `ms` and prints them beside the figures from before.
  void measure_bystander(const char* name, int ms = 600);
  void end_attack() { attacker_.kill(); }
  // Within `most` a session of the victim must end with a reason that contains `words`.
  testing::AssertionResult ends_with_reason(const char* words, std::chrono::milliseconds most);
  // The bystander must still write, and a new peer must be able to connect over that transport.
  void expect_alive();

 private:
  struct Times {
    double p50 = 0, p99 = 0;
    std::string status;
  };
  Times measure(int ms);

  const std::string transport_;
  RegionId memory_;
  ChildProcess bystander_, late_, attacker_;
  std::unique_ptr<Engine> victim_;
  Times quiet_;
  std::size_t descriptors_ = 0, resident_ = 0;
};

}  // namespace fairway::hostile

#include "mortal.h"

#include <cstdlib>
#include <list>
#include <shared_mutex>
#include <thread>
#include <utility>

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "support/verbs/nic.h"
#include "sys/system_runtime.h"

namespace fairway::threads {
namespace {

// The threads of an engine, which can be stopped between two steps.
class Stoppable final : public Executor {
 public:
  explicit Stoppable(Executor& executor) : executor_(executor) {}

  void stop(bool stopped) {
    const std::unique_lock lock(mutex_);  // until no step is under way
    stopped_ = stopped;
  }
  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override {
    const std::lock_guard lock(steps_mutex_);
    return executor_.start(options, steps_.emplace_back(*this, stepper));
  }
  Result<std::unique_ptr<Signal>> make_signal() override { return executor_.make_signal(); }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    executor_.wait(word, seen, deadline);
  }
  void wake_all(std::atomic<std::uint32_t>& word) override { executor_.wake_all(word); }
  [[nodiscard]] unsigned cores() const override { return executor_.cores(); }

 private:
  struct Steps final : Stepper {
    Steps(Stoppable& of, Stepper& stepper) : of(of), stepper(stepper) {}
    Time step(Time now) override {
      const std::shared_lock lock(of.mutex_);
      return of.stopped_ ? now + 10 * kMillisecond : stepper.step(now);
    }
    bool prepare_sleep() override {
      const std::shared_lock lock(of.mutex_);
      return of.stopped_ || stepper.prepare_sleep();
    }
    Stoppable& of;
    Stepper& stepper;
  };

  Executor& executor_;
  std::shared_mutex mutex_;  // guards stopped_
  bool stopped_ = false;
  std::mutex steps_mutex_;  // guards steps_
  std::list<Steps> steps_;
};

// How many ended of the sockets of this process that are bound to that port: of who listens there, and those it
// accepted.
std::size_t end_sockets(std::uint16_t port) {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::size_t ended = 0;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in own{};
    socklen_t size = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 && own.sin_family == AF_INET &&
        ntohs(own.sin_port) == port)
      ended += ::shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
  }
  ::closedir(folder);
  return ended;
}

}  // namespace

struct Mortal::Life {
  sys::SystemRuntime system;
  Runtime plain = system.runtime();
  Stoppable executor{plain.executor};
  Runtime runtime{plain.clock, plain.rng, executor, plain.network};
  std::optional<Engine> engine;
  std::thread receives;
};

Mortal::Mortal() : life_(std::make_unique<Life>()) {}

Result<std::unique_ptr<Mortal>> Mortal::open(const EngineOptions& options) {
  std::unique_ptr<Mortal> mortal(new Mortal);
  Life& life = *mortal->life_;
  auto engine = open_on_nic(options, "nic1", life.runtime, false);
  if (!engine) return engine.status();
  life.engine.emplace(std::move(*engine));
  const auto region = life.engine->allocate(kLent, Access::all);
  if (!region) return region.status();
  if (Status status = life.engine->publish("memory", *region); !status) return status;
  life.receives = std::thread([&engine = *life.engine, id = region->id] {
    for (;;) {
      const auto receive = engine.receive({}, 1, {id, kTaken, kArea});
      if (!receive || !engine.wait(*receive)) return;
    }
  });
  return mortal;
}

Mortal::~Mortal() {
  life_->executor.stop(false);
  if (life_->engine) life_->engine->close();
  if (life_->receives.joinable()) life_->receives.join();
}

std::string Mortal::address() const {
  return life_->engine->address();
}

std::size_t Mortal::die() {
  life_->executor.stop(true);
  const std::string at = address();
  const std::size_t ended = end_sockets(static_cast<std::uint16_t>(std::atoi(at.substr(at.rfind(':') + 1).c_str())));
  support::nic::kill("nic1");
  return ended;
}

}  // namespace fairway::threads

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/fairway.h"

#include "demo.h"

extern char** environ;

namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

Status system_error(const std::string& what) {
  return {ErrorCode::system_error, what + ": " + std::strerror(errno)};
}

// The other process: this program again, as `fairway demo peer`. Ends with this object.
class OtherProcess {
 public:
  OtherProcess() = default;
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  // Starts it and reads its engine's address.
  Result<std::string> start() {
    int to_child[2];
    int from_child[2];
    if (::pipe(to_child) != 0) return system_error("cannot make a pipe");
    if (::pipe(from_child) != 0) return system_error("cannot make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, to_child[1]);
    std::array<std::string, 3> words{"fairway", "demo", "peer"};
    std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};
    const int failed = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(to_child[0]);
    ::close(from_child[1]);
    stdin_ = to_child[1];
    std::string line;
    if (failed != 0) {
      pid_ = -1;
      errno = failed;
    } else {
      for (char c = 0; ::read(from_child[0], &c, 1) == 1 && c != '\n';) line += c;
    }
    ::close(from_child[0]);
    if (failed != 0) return system_error("cannot start a second process");
    if (line.empty()) return Status(ErrorCode::system_error, "the second process ended at once");
    return line;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    end();
  }
  void end() {
    if (stdin_ >= 0) ::close(stdin_);
    stdin_ = -1;
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
};

// The next event of that kind. Any other is passed over.
Result<PeerEvent> next(Engine& engine, PeerEvent::Kind kind) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  std::array<PeerEvent, 1> event;
  while (Clock::now() < until) {
    if (engine.poll_peer_events(event) == 0) {
      (void)engine.wait_peer_event(std::chrono::milliseconds(100));
      continue;
    }
    if (event[0].kind == kind) return event[0];
  }
  return Status(ErrorCode::timed_out, "the other process did not show up");
}

}  // namespace

Status demo_processes(Tool& tool) {
  auto engine = Engine::open({});
  if (!engine) return engine.status();
  tool.print("\nTwo processes.\n");
  for (const char* life : {"first", "second"}) {
    OtherProcess other;
    const auto address = other.start();
    if (!address) return address.status();
    auto start = Clock::now();
    const auto peer = engine->connect(*address);
    if (!peer) return peer.status();
    const auto up = next(*engine, PeerEvent::Kind::up);
    if (!up) return up.status();
    const double met = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    tool.print(
        fmt::format("Met {} at {} in {:.1f} ms, incarnation {:016x}\n", up->name, *address, met, up->incarnation));
    if (std::string_view(life) == "first")
      if (Status status = demo_path(tool, *engine, *peer); !status) return status;
    start = Clock::now();
    if (std::string_view(life) == "first")
      other.kill();
    else
      other.end();
    const auto down = next(*engine, PeerEvent::Kind::down);
    if (!down) return down.status();
    const double gone = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    tool.print(fmt::format("{} after {:.1f} ms: {}\n",
                           std::string_view(life) == "first" ? "Killed it; known" : "It closed; known", gone,
                           down->reason.to_string()));
  }
  return {};
}

Exit demo_peer(Tool& tool) {
  EngineOptions options;
  options.name = "the other process";
  auto engine = Engine::open(options);
  if (!engine) return tool.fail(engine.status());
  const auto target = engine->allocate(kDemoBytes, Access::read | Access::write);
  if (!target) return tool.fail(target.status());
  if (Status status = engine->publish("target", *target); !status) return tool.fail(status);
  tool.print(engine->address() + "\n");
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return Exit::done;
}

}  // namespace fairway::tool

#include <array>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "fairway/fairway.h"

#include "demo.h"
#include "other_process.h"

namespace fairway::tool {
namespace {

using Clock = std::chrono::steady_clock;

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
    const auto address = other.start({"demo", "peer"});
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
  wait_for_end_of_input();
  return Exit::done;
}

}  // namespace fairway::tool

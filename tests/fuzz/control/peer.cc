#include <cstdint>
#include <cstdlib>

#include "control/control.h"
#include "unit/control/scripted_peer.h"

// A peer that knows the job's key and says anything: the input is a list of frames (type, 16-bit size, body), the first
// byte says as what it joined. The engine serves a directory.
namespace fairway::control {
namespace {

struct Counts final : Observer {
  void session_up(SessionId, const PeerInfo&) override { ++up; }
  void session_down(SessionId, const Status&) override { --up; }
  void message(SessionId, std::span<const std::byte>) override { ++messages; }
  void connect_done(std::uint64_t, Result<SessionId>) override {}
  void resolve_done(std::uint64_t, Result<std::string>) override {}
  Progress progress() override { return {}; }
  int up = 0;
  int messages = 0;
};

}  // namespace
}  // namespace fairway::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairway;
  using namespace fairway::control;
  if (size < 1 || size > 4096) return 0;
  FakeWorld world;
  Options options;
  options.job_key = "k";
  options.directory = "serve";
  Counts engine;
  Runtime runtime = world.add_node().runtime();
  auto opened = open_control(options, runtime, engine);
  if (!opened) std::abort();
  Control& control = *opened.value();
  ScriptedPeer peer(world, "k");
  const int role = data[0] % 3;
  if (role == 2 ? !peer.dial(control.address())
                : !peer.join(control.address(), role == 0 ? Intent::connect : Intent::directory))
    std::abort();
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  ByteReader reader(input);
  while (!reader.done() && reader.ok()) {
    const auto type = reader.get<std::uint8_t>();
    const auto body = reader.get_sized();
    if (!reader.ok() || body.size() > kMaxBody) break;
    peer.connection().put(static_cast<FrameType>(type), body);
  }
  for (int i = 0; i < 4; ++i) peer.turn();
  if (engine.up < 0 || engine.up > 1 || engine.messages > 4096) std::abort();
  control.close();
  if (engine.up != 0) std::abort();
  return 0;
}

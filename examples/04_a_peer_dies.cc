// Without an argument: takes blocks. With `dies`: is killed at the third of them. With addresses: sends all blocks to
// the first that lives to take them. docs/tutorial/04-when-a-peer-dies.md explains it.
#include <array>
#include <csignal>
#include <span>
#include <string_view>

#include "need.h"

namespace {

constexpr std::uint64_t kBlock = 65536;
constexpr std::uint32_t kBlocks = 16;

int take(bool dies) {
  // Back-pressure: the next block waits until this side has looked at the last one.
  fairway::Engine engine = need(fairway::Engine::open({.notifications_per_peer = 1}));
  const fairway::Region board = need(engine.allocate(kBlocks * kBlock, fairway::Access::write));
  need(engine.publish("board", board));
  std::printf("%s\n", engine.address().c_str());
  std::fflush(stdout);

  std::array<fairway::Notification, 1> note;
  for (std::uint32_t taken = 1; taken <= kBlocks; ++taken) {
    need(engine.wait_notification(std::chrono::seconds(60)));
    if (dies && taken == 3) std::raise(SIGKILL);
    if (engine.poll_notifications(note) != 1) return 1;
  }
  std::printf("all %u blocks are here\n", kBlocks);
  return 0;
}

// Returns when the session is over: nothing of that peer comes after this.
void wait_until_down(fairway::Engine& engine, fairway::PeerId peer) {
  std::array<fairway::PeerEvent, 1> event;
  do {
    need(engine.wait_peer_event(std::chrono::seconds(10)));
  } while (!engine.poll_peer_events(event) || event[0].kind != fairway::PeerEvent::Kind::down || event[0].peer != peer);
  std::printf("%s is down\n", event[0].name.c_str());
}

// ok: all blocks are at that peer.
fairway::Status send_all(fairway::Engine& engine, const fairway::Region& blocks, const char* address) {
  auto peer = engine.connect(address);
  if (!peer) return peer.status();
  auto board = engine.lookup(*peer, "board");
  if (!board) return board.status();
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    const auto started = std::chrono::steady_clock::now();
    const auto event = fairway::notify_event(i);
    auto id = engine.write(*peer, {{blocks.id, i * kBlock, kBlock}, {board->id, i * kBlock}}, {.notify = event});
    // Refused, because it is known to be dead, or ended by its death: wait() needs no timeout.
    const fairway::Status status = id ? need(engine.wait(*id)).status : id.status();
    if (status) continue;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - started;
    std::printf("block %u failed after %.1f ms, %s\n", i, took.count(), to_string(status.effect()).data());
    wait_until_down(engine, *peer);
    return status;
  }
  return {};
}

int send(std::span<char*> addresses) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region blocks = need(engine.allocate(kBlocks * kBlock, fairway::Access::none));
  for (const char* address : addresses) {
    const fairway::Status sent = send_all(engine, blocks, address);
    if (sent) return std::printf("all %u blocks are at %s\n", kBlocks, address), 0;
    std::printf("%s\n", sent.to_string().c_str());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  arguments(argc, argv, argc, "[dies | ADDRESS...]");
  if (argc == 1 || std::string_view(argv[1]) == "dies") return take(argc > 1);
  return send(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
}

// The three ways to be told that bytes have arrived: an event, a counter, a signal in memory. Without an argument: the
// side that is told. With its address: the side that writes. docs/tutorial/02-notifications.md explains it.
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>

#include <poll.h>

#include "need.h"

namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint32_t kBlocks = 8, kHeader = 1, kBlockCounter = 2;
constexpr std::uint64_t kSignal = kBlocks * kBlock;  // where in the board the signal is

int be_told() {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const auto access = fairway::Access::write | fairway::Access::atomic;  // a signal is an atomic
  const fairway::Region board = need(engine.allocate(kSignal + 8, access));
  need(engine.publish("board", board));
  std::printf("%s\n", engine.address().c_str());
  std::fflush(stdout);

  // An event carries a number and a short message. fd() fits poll(2), epoll and event loops.
  std::array<fairway::Notification, 1> note;
  pollfd wake{.fd = engine.fd(), .events = POLLIN, .revents = 0};
  while (engine.poll_notifications(note) == 0) ::poll(&wake, 1, -1);
  const std::string_view message(reinterpret_cast<const char*>(note[0].message), note[0].message_bytes);
  std::printf("event %u: '%.*s'\n", note[0].immediate, static_cast<int>(message.size()), message.data());

  // A counter only grows: one wait for all blocks, in whichever order they arrive.
  need(engine.wait_counter(kBlockCounter, kBlocks, std::chrono::seconds(60)));
  int whole = 0;
  for (std::uint32_t i = 0; i < kBlocks; ++i) whole += board.address[i * kBlock] == std::byte(i + 1) ? 1 : 0;
  std::printf("counter %u: %d of %u blocks are whole\n", kBlockCounter, whole, kBlocks);

  // A signal is a u64 in memory: for a thread, or a GPU's kernel, that looks at memory and calls nothing.
  std::atomic_ref signal(*reinterpret_cast<std::uint64_t*>(board.address + kSignal));
  while (signal.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  std::printf("signal: %llu\n", static_cast<unsigned long long>(signal.load()));
  return whole == kBlocks ? 0 : 1;
}

int write_to(const char* address) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region draft = need(engine.allocate(kBlocks * kBlock, fairway::Access::none));
  const fairway::PeerId peer = need(engine.connect(address));
  const fairway::RemoteRegion board = need(engine.lookup(peer, "board"));
  for (std::uint32_t i = 0; i < kBlocks; ++i) std::memset(draft.address + i * kBlock, static_cast<int>(i + 1), kBlock);

  // A write of no bytes is an event alone.
  const std::string_view message = "8 blocks of 4096 bytes will follow";
  const fairway::Extent nothing{.local = {draft.id, 0, 0}, .remote = {board.id, 0}};
  const auto event = fairway::notify_event(kHeader, std::as_bytes(std::span(message)));
  fairway::TransferId last = need(engine.write(peer, nothing, {.notify = event}));
  need(need(engine.wait(last)).status);
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    const fairway::Extent block{.local = {draft.id, i * kBlock, kBlock}, .remote = {board.id, i * kBlock}};
    last = need(engine.write(peer, block, {.notify = fairway::notify_counter(kBlockCounter)}));
    need(need(engine.wait(last)).status);
  }
  last = need(engine.write(peer, nothing, {.notify = fairway::set_signal({board.id, kSignal}, 42)}));
  need(need(engine.wait(last)).status);
  std::printf("all are there\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  arguments(argc, argv, 1, "[ADDRESS]");
  return argc > 1 ? write_to(argv[1]) : be_told();
}

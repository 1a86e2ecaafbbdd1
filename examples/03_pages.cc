// Scattered pages in one transfer, as a KV cache moves them. Without an argument: the side that has free pages. With
// its address: the side that sends 64 of its pages to them. docs/tutorial/03-pages.md explains it.
#include <array>
#include <cstring>
#include <random>
#include <span>

#include "need.h"

namespace {

constexpr std::uint64_t kPage = 16384, kPages = 1024;
constexpr std::size_t kMoved = 64;
using Table = std::array<std::uint32_t, kMoved>;  // 256 bytes: as much as an event's message holds

int have_pages() {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region cache = need(engine.allocate(kPages * kPage, fairway::Access::write));
  need(engine.publish("cache", cache));
  std::printf("%s\n", engine.address().c_str());
  std::fflush(stdout);

  std::array<fairway::Notification, 1> note;
  need(engine.wait_notification(std::chrono::seconds(60)));
  if (engine.poll_notifications(note) != 1 || note[0].message_bytes != sizeof(Table)) return 1;
  Table table;
  std::memcpy(table.data(), note[0].message, sizeof table);
  std::size_t whole = 0;
  for (std::size_t i = 0; i < kMoved; ++i) {
    const std::byte* page = cache.address + table[i] * kPage;
    whole += page[0] == std::byte(i) && std::memcmp(page, page + 1, kPage - 1) == 0 ? 1 : 0;
  }
  std::printf("request %u: %zu of %zu pages are whole\n", note[0].immediate, whole, kMoved);

  // The other side asks now which way its pages took, and of a peer that is gone nobody knows: it goes first.
  std::array<fairway::PeerEvent, 1> event;
  do {
    need(engine.wait_peer_event(std::chrono::seconds(60)));
  } while (!engine.poll_peer_events(event) || event[0].kind != fairway::PeerEvent::Kind::down);
  return whole == kMoved ? 0 : 1;
}

int send_to(const char* address) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region own = need(engine.allocate(kPages * kPage, fairway::Access::none));
  const fairway::PeerId peer = need(engine.connect(address));
  const fairway::RemoteRegion theirs = need(engine.lookup(peer, "cache"));

  // Which pages go where: page from[i] here becomes page to[i] there. A real cache has such tables already.
  std::array<std::uint64_t, kMoved> from, to;
  Table table;
  std::mt19937 chance(1);
  for (std::size_t i = 0; i < kMoved; ++i) {
    from[i] = i * (kPages / kMoved) + chance() % (kPages / kMoved);
    to[i] = (kMoved - 1 - i) * (kPages / kMoved) + chance() % (kPages / kMoved);
    table[i] = static_cast<std::uint32_t>(to[i]);
    std::memset(own.address + from[i] * kPage, static_cast<int>(i), kPage);
  }
  // The arrays are borrowed until the transfer completes. The unit makes their numbers page numbers.
  const fairway::Paged pages{own.id, theirs.id, kPage, kPage, kPage, from, to};
  const auto event = fairway::notify_event(11, std::as_bytes(std::span(table)));
  const fairway::TransferId id = need(engine.write(peer, pages, {.notify = event}));
  need(need(engine.wait(id)).status);
  std::printf("%s", need(engine.explain(id)).text().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  arguments(argc, argv, 1, "[ADDRESS]");
  return argc > 1 ? send_to(argv[1]) : have_pages();
}

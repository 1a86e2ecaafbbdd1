// Two processes. Without an argument: offers memory, prints its address and waits. With that address: writes into the
// memory of the other one, which is told. docs/tutorial/01-two-processes.md explains it.
#include <array>
#include <cstring>

#include "need.h"

namespace {

int offer() {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region inbox = need(engine.allocate(4096, fairway::Access::write));
  need(engine.publish("inbox", inbox));
  std::printf("%s\n", engine.address().c_str());
  std::fflush(stdout);

  std::array<fairway::Notification, 1> note;
  need(engine.wait_notification(std::chrono::seconds(60)));
  if (engine.poll_notifications(note) != 1) return 1;
  std::printf("event %u: the inbox says '%s'\n", note[0].immediate, reinterpret_cast<const char*>(inbox.address));
  return 0;
}

int write_to(const char* address) {
  fairway::Engine engine = need(fairway::Engine::open({}));
  const fairway::Region draft = need(engine.allocate(4096, fairway::Access::none));
  std::strcpy(reinterpret_cast<char*>(draft.address), "hello from another process");

  const fairway::PeerId peer = need(engine.connect(address));
  const fairway::RemoteRegion inbox = need(engine.lookup(peer, "inbox"));
  const auto event = fairway::notify_event(7);
  const fairway::TransferId id = need(engine.write(peer, {{draft.id, 0, 4096}, {inbox.id, 0}}, {.notify = event}));
  const fairway::Completion done = need(engine.wait(id));
  need(done.status);
  std::printf("%llu bytes are there, and the other side was told\n", static_cast<unsigned long long>(done.bytes));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  arguments(argc, argv, 1, "[ADDRESS]");
  return argc > 1 ? write_to(argv[1]) : offer();
}

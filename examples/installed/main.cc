// The shortest program outside this tree: found by find_package(fairway) or by pkg-config, see CMakeLists.txt beside
// it. Two engines of one process; one writes into the other's memory and the other is told.
#include <array>
#include <cstdio>
#include <cstring>

#include "fairway/fairway.h"

int main(int argc, char** argv) {
  if (argc > 1) return std::fprintf(stderr, "usage: %s\n", argv[0]), 2;
  fairway::EngineOptions options;
  options.loopback = fairway::make_loopback();
  auto alice = fairway::Engine::open(options);
  auto bob = fairway::Engine::open(options);
  if (!alice || !bob) return 1;

  auto inbox = bob->allocate(4096, fairway::Access::write);
  auto draft = alice->allocate(4096, fairway::Access::none);
  if (!inbox || !draft || !bob->publish("inbox", *inbox)) return 1;
  std::strcpy(reinterpret_cast<char*>(draft->address), "hello, bob");

  auto peer = alice->connect(bob->address());
  if (!peer) return std::puts(peer.status().to_string().c_str()), 1;
  auto remote = alice->lookup(*peer, "inbox");
  if (!remote) return std::puts(remote.status().to_string().c_str()), 1;

  fairway::RequestOptions with;
  with.notify = fairway::notify_event(7);
  auto id = alice->write(*peer, {{draft->id, 0, 4096}, {remote->id, 0}}, with);
  auto done = id ? alice->wait(*id) : id.status();
  if (!done || !done->status) return std::puts((done ? done->status : done.status()).to_string().c_str()), 1;

  std::array<fairway::Notification, 1> note;
  if (!bob->wait_notification(std::chrono::seconds(1)) || bob->poll_notifications(note) != 1) return 1;
  std::printf("bob was told %u and reads: %s\n", note[0].immediate, reinterpret_cast<char*>(inbox->address));
  return 0;
}

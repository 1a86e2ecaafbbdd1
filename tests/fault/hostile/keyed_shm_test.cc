#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scene.h"
#include "seams.h"
#include "support/open_engine.h"
#include "support/sanitized.h"
#include "transport/host/handshake.h"

// Attacks by a peer on the same host that knows the job's key.
namespace fairway::hostile {
namespace {

using std::chrono::milliseconds;
using transport::host::Note;
using transport::host::Record;
using transport::host::RecordType;

// The socket and the segment of an established link that this side dialed.
struct Link {
  explicit Link(const std::string& address) : met("shm", address, std::chrono::minutes(1)) {
    if (!met.why) return;
    socket = local_pairs().at(0);
    segment = hostile::segment();
  }
  auto& out() { return segment->directions[0]; }
  auto& in() { return segment->directions[1]; }
  // The sequence number that the victim reads next.
  std::uint32_t next() {
    std::uint32_t most = 0;
    for (auto& cell : out().cells) most = std::max(most, cell.stamp.load());
    return most;
  }
  void put(std::uint32_t at, const Record& record) {
    auto& cell = out().cells[at % transport::host::kCells];
    cell.record = record;
    cell.stamp.store(at + 1);
  }
  void wake() {
    segment->ends[1].asleep.store(0);
    static_cast<void>(really_send(socket, transport::host::kRing.data(), transport::host::kRing.size(), nullptr, 0));
  }

  Keyed met;
  int socket = -1;
  transport::host::Segment* segment = nullptr;
};

Scene::Attack with_link(void (*attack)(Link&)) {
  return [attack](ChildProcess::Line& line, const std::string& address) {
    Link link(address);
    line.write(link.segment != nullptr ? "there" : link.met.why.to_string());
    line.read();
    attack(link);
  };
}

[[noreturn]] void stay() {
  for (;;) std::this_thread::sleep_for(milliseconds(100));
}

// ---- file descriptors ----

int lingering() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::listen(listener, 1);
  sockaddr_in at{};
  socklen_t size = sizeof at;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  const std::vector<char> much(1 << 20);
  while (::send(fd, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger hour{1, 3600};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour);
  return fd;
}

int memory(std::size_t size, int seals) {
  const int fd = ::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return -1;
  ::fcntl(fd, F_ADD_SEALS, seals);
  return fd;
}

struct Wrong {
  const char* name;
  int (*make)();
};
constexpr Wrong kWrong[] = {
    {"a pipe without a reader",
     [] {
       int ends[2];
       if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
       ::close(ends[0]);
       return ends[1];
     }},
    {"a full eventfd that blocks",
     [] {
       const int fd = ::eventfd(0, EFD_CLOEXEC);
       const std::uint64_t full = ~std::uint64_t{0} - 1;
       return ::write(fd, &full, sizeof full) == sizeof full ? fd : -1;
     }},
    {"a socket that lingers for an hour", lingering},
    {"a folder", [] { return ::open("/", O_RDONLY | O_CLOEXEC); }},
    {"/dev/zero", [] { return ::open("/dev/zero", O_RDWR | O_CLOEXEC); }},
    {"an epoll set", [] { return ::epoll_create1(EPOLL_CLOEXEC); }},
    {"a pidfd", [] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)); }},
    {"memory that is not sealed", [] { return memory(8 << 20, 0); }},
    {"memory that is too short", [] { return memory(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL); }},
};

std::atomic<int> wrong_fd{-1};
std::atomic<std::size_t> wrong_place{0};

// Sends hellos and welcomes with a wrong descriptor.
ssize_t swap_descriptor(int fd, const msghdr* message, int flags) {
  cmsghdr* header = message->msg_controllen == 0 ? nullptr : CMSG_FIRSTHDR(message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const int other = wrong_fd.load();
    if (wrong_place < count) std::memcpy(CMSG_DATA(header) + wrong_place * sizeof(int), &other, sizeof other);
  }
  return really_send(fd, message, flags);
}

TEST(KeyedShm, AHelloWithDescriptorsOfAWrongKindIsRefused) {
  Scene scene("shm", [](ChildProcess::Line& line, const std::string& address) {
    line.write("there");
    line.read();
    send_message = swap_descriptor;
    for (const Wrong& wrong : kWrong)
      for (const std::size_t place : {0u, 1u}) {
        wrong_fd = wrong.make();
        wrong_place = place;
        auto engine = open_engine(options_of("hostile", "shm"));
        const auto start = std::chrono::steady_clock::now();
        const auto met = engine->connect(address, milliseconds(3000));
        const bool soon = std::chrono::steady_clock::now() - start < milliseconds(2500);
        line.write(std::string(met    ? "taken: "
                               : soon ? "refused: "
                                      : "late: ") +
                   wrong.name + ": " + met.status().to_string());
        ::close(wrong_fd);
      }
    line.write("all");
  });
  scene.begin();
  for (std::string told = scene.says(); told != "all" && !told.empty(); told = scene.says())
    EXPECT_TRUE(told.starts_with("refused")) << told;
  scene.measure_bystander("(after) descriptors of each wrong kind");
  scene.expect_alive();
}

// Whoever closes this descriptor last blocks for an hour (SO_LINGER). That is meant to be the victim, which gets it
// with the notes: the rings sent before them give this process the time to close its own copy first.
TEST(KeyedShm, DescriptorsThatNobodyAskedForAreClosedAtOnce) {
  Scene scene("shm", with_link([](Link& link) {
                never_reads = true;
                Note ask;
                ask.file = 7;
                const auto bytes = encode(ask);
                for (int i = 0; i < 40; ++i) {
                  const int fds[2] = {lingering(), ::eventfd(0, 0)};
                  for (int ring = 0; ring < 150; ++ring)
                    really_send(link.socket, transport::host::kRing.data(), 3, nullptr, 0);
                  really_send(link.socket, bytes.data(), bytes.size(), fds, 2);
                  std::thread([fd = fds[0]] { ::close(fd); }).detach();  // blocks if this close is the last
                  ::close(fds[1]);
                  std::this_thread::sleep_for(milliseconds(5));
                }
                stay();
              }));
  scene.begin();
  scene.measure_bystander("lingering sockets beside notes");
  scene.expect_alive();
}

// ---- the local socket ----

TEST(KeyedShm, WhoAsksForFilesAndReadsNothingIsLeft) {
  Scene scene("shm", with_link([](Link& link) {
                never_reads = true;
                Note ask;
                ask.file = 7;
                const auto bytes = encode(ask);
                for (;;)
                  if (really_send(link.socket, bytes.data(), bytes.size(), nullptr, 0) < 0) std::this_thread::yield();
              }));
  scene.begin();
  scene.measure_bystander("asks for files and never reads");
  EXPECT_TRUE(scene.ends_with_reason("does not read the answers", milliseconds(10'000)));
  scene.expect_alive();
}

TEST(KeyedShm, AFloodOfNotesLeavesTheOthersTheirTurn) {
  Scene scene("shm", with_link([](Link& link) {
                for (;;) {
                  link.segment->ends[1].asleep.store(0);
                  if (really_send(link.socket, transport::host::kRing.data(), 3, nullptr, 0) < 0)
                    std::this_thread::sleep_for(milliseconds(1));
                }
              }));
  scene.begin();
  scene.measure_bystander("a flood of notes");
  scene.expect_alive();
}

TEST(KeyedShm, ANoteOfNoSenseEndsTheSession) {
  Scene scene("shm", with_link([](Link& link) {
                const std::array<unsigned char, 40> ones = [] {
                  std::array<unsigned char, 40> all;
                  all.fill(0xff);
                  return all;
                }();
                really_send(link.socket, ones.data(), ones.size(), nullptr, 0);
                link.wake();
                stay();
              }));
  scene.begin();
  EXPECT_TRUE(scene.ends_with_reason("handshake", milliseconds(10'000)));
  scene.measure_bystander("(after) a note of no sense");
  scene.expect_alive();
}

// ---- the ring ----

TEST(KeyedShm, ARingOfAllOnesEndsTheSessionWithTheReason) {
  Scene scene("shm", with_link([](Link& link) {
                Record ones;
                std::memset(static_cast<void*>(&ones), 0xff, sizeof ones);
                link.in().freed.store(~0u);
                link.in().freed_bytes.store(~0u);
                link.put(link.next(), ones);
                link.wake();
                stay();
              }));
  scene.begin();
  EXPECT_TRUE(scene.ends_with_reason("record", milliseconds(10'000)));
  scene.measure_bystander("(after) a ring of all ones");
  scene.expect_alive();
}

// Refills the ring while the victim reads it.
void refill(Link& link, std::uint32_t at) {
  Record immediate;
  immediate.type = RecordType::nudge;
  for (;; ++at) {
    link.put(at, immediate);
    if (at % 1024 == 0) link.wake();
  }
}

TEST(KeyedShm, ARingThatFillsWithoutEndLeavesTheOthersTheirTurn) {
  Scene scene("shm", with_link([](Link& link) { refill(link, link.next()); }));
  scene.begin();
  scene.measure_bystander("a ring that fills without end");
  scene.expect_alive();
}

TEST(KeyedShm, AFenceBesideARingThatFillsWithoutEndIsOver) {
  Scene scene("shm", with_link([](Link& link) {
                std::thread closes([&] {
                  std::this_thread::sleep_for(milliseconds(50));
                  link.segment->ends[0].closed.store(1);
                  ::shutdown(link.socket, SHUT_RDWR);
                });
                refill(link, link.next());
              }));
  scene.begin();
  scene.measure_bystander("the same, and its end of the link is closed", 1500);
  scene.expect_alive();
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

TEST(KeyedShm, ATouchThatDoesNotEndCostsLittleAndThenTheSession) {
  Scene scene("shm", with_link([](Link& link) {
                link.out().touching.store(1'000'001);
                link.segment->ends[0].closed.store(1);
                link.wake();  // who sleeps looks at nothing
                for (;;) {
                  link.out().touching.store(1'000'001);
                  std::this_thread::yield();
                }
              }));
  scene.begin();
  scene.measure_bystander("in a touch for ever, its end closed", 1000);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(1000));
  const double burnt = cpu_seconds() - before;
  std::printf("the victim meanwhile: %.3f of a core\n", burnt);
  if (!kSanitized) {
    EXPECT_LT(burnt, 0.2);  // polling it without a pause takes 0.7, a socket that nobody reads 0.4
  }
  EXPECT_TRUE(scene.ends_with_reason("in the middle of one copy", milliseconds(kSanitized ? 30'000 : 12'000)));
  scene.expect_alive();
}

// As of a write whose initiator is told that it has arrived: its notification follows within the same touch. No attack;
// the peer is stopped and its side played, so that its touch has begun before it is left and goes on for a while. Where
// the machine is so busy that it goes on for longer than anybody waits, the next one tells.
TEST(KeyedShm, WhatAPeerIsInTheMiddleOfWhenItIsLeftArrives) {
  constexpr int kTries = 4;
  std::vector<std::unique_ptr<ChildProcess>> peers;
  for (int i = 0; i < kTries; ++i)
    peers.push_back(std::make_unique<ChildProcess>([](ChildProcess::Line& line) {
      Link link(line.read());
      if (link.segment == nullptr) return line.write(link.met.why.to_string());
      const pid_t peer = ::getpid();
      if (::fork() != 0) stay();
      ::kill(peer, SIGSTOP);  // it would hear that it is left, and leave, too
      std::this_thread::sleep_for(milliseconds(10));
      Record counts;
      counts.type = RecordType::immediate;
      counts.immediate = 5;
      const std::uint32_t at = link.next();
      link.out().touching.store(1'000'001);
      line.write("there");
      while (link.segment->ends[1].closed.load() == 0 && ::getppid() == peer) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(10));
      link.put(at, counts);
      link.out().touching.store(1'000'002);
      ::_exit(0);
    }));
  auto left = open_engine(options_of("left", "shm"));
  const auto memory = left->allocate(kBytes, Access::all);
  ASSERT_TRUE(memory && left->publish("memory", *memory));
  for (const auto& peer : peers) {
    peer->write(left->address());
    ASSERT_EQ(peer->read(), "there");
    std::array<PeerEvent, 1> events;
    do ASSERT_TRUE(left->wait_peer_event(kSoon));
    while (left->poll_peer_events(events) == 0 || events[0].kind != PeerEvent::Kind::up);
    EXPECT_TRUE(left->disconnect(events[0].peer));
    if (left->wait_counter(5, 1, milliseconds(500))) break;
  }
  EXPECT_GE(left->counter(5), 1u) << "of " << kTries << " none arrived";
}

TEST(KeyedShm, LinksThatBreakAtOnceAgainAndAgainAreTakenLaterAndLater) {
  Scene scene("shm", with_link([](Link&) {
                for (;;) {
                  for (const int fd : local_pairs()) ::shutdown(fd, SHUT_RDWR);
                  std::this_thread::sleep_for(milliseconds(1));
                }
              }));
  scene.begin();
  scene.measure_bystander("breaks its link again and again");
  scene.expect_alive();
}

}  // namespace
}  // namespace fairway::hostile

#include <algorithm>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "scene.h"
#include "support/open_engine.h"

// Attacks by a peer that does not know the job's key.
namespace fairway::hostile {
namespace {

using std::chrono::milliseconds;

// Holds `count` connections open that send nothing, or `words`, for as long as the process lives.
void crowd(ChildProcess::Line& line, const std::function<int()>& dial, std::size_t count, const std::string& words) {
  line.write("there");
  line.read();
  std::vector<int> kept;
  while (kept.size() < count) {
    const int fd = dial();
    if (fd < 0) std::this_thread::sleep_for(milliseconds(1));
    if (fd < 0 && kept.size() > count / 2) break;  // the accept queue is full, as it should be
    if (fd < 0) continue;
    if (!words.empty()) ::send(fd, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    kept.push_back(fd);
  }
  line.write(std::to_string(kept.size()));
  line.read();
}

// The ports and socket names that the victim listens on. They are known once a peer has used them.
std::uint16_t data_port(const Engine& victim) {
  const auto ports = listening_ports();
  const auto found =
      std::find_if(ports.begin(), ports.end(), [&](auto each) { return each != port_of(victim.address()); });
  return found == ports.end() ? 0 : *found;
}

void crowd_tcp(const std::string& name, std::size_t count, const std::string& words) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Scene scene("tcp", [=](ChildProcess::Line& line, const std::string&) {
    line.write("there");
    const auto port = static_cast<std::uint16_t>(std::stoi(line.read()));
    crowd(
        line, [=] { return dial_tcp(port); }, count, words);
  });
  EXPECT_EQ(scene.says(), "there");
  scene.tell(std::to_string(data_port(scene.victim())));
  scene.begin();
  scene.measure_bystander((name + ", coming").c_str());
  EXPECT_NE(scene.says(), "");
  scene.measure_bystander((name + ", there").c_str());
  scene.expect_alive();
}

TEST(Unauthenticated, IdleConnectionsToTheDataPortKeepNobodyOut) {
  crowd_tcp("2500 idle connections to the data port", 2500, "");
}

TEST(Unauthenticated, HalfHellosToTheDataPortKeepNobodyOut) {
  crowd_tcp("2500 half hellos to the data port", 2500, std::string("FTP1 and not much more"));
}

TEST(Unauthenticated, NonsenseToControlKeepsNobodyOut) {
  Scene scene("tcp", [](ChildProcess::Line& line, const std::string& address) {
    crowd(
        line, [&] { return dial_tcp(port_of(address)); }, 500, std::string("FAIRWAY"));
  });
  scene.begin();
  scene.measure_bystander("500 half hellos to control");
  scene.expect_alive();
}

void crowd_local(const char* name, std::size_t count, const std::string& words, uid_t user) {
  Scene scene("shm", [=](ChildProcess::Line& line, const std::string&) {
    line.write("there");
    const std::string door = line.read();
    if (user != 0 && ::setresuid(user, user, user) != 0) return;
    crowd(
        line, [=] { return dial_local(door); }, count, words);
  });
  EXPECT_EQ(scene.says(), "there");
  scene.tell(local_name());
  scene.begin();
  scene.measure_bystander(name);
  scene.expect_alive();
}

TEST(Unauthenticated, IdleConnectionsToTheLocalSocketKeepNobodyOut) {
  crowd_local("193 idle connections to the local socket", 193, "", 0);
}

TEST(Unauthenticated, NonsenseToTheLocalSocketKeepsNobodyOut) {
  crowd_local("193 connections with nonsense to the local socket", 193, std::string(700, '\xff'), 0);
}

TEST(Unauthenticated, AnotherUserIsRefusedAtTheLocalSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  Scene scene("shm", [](ChildProcess::Line& line, const std::string&) {
    line.write("there");
    const std::string door = line.read();
    if (::setresuid(65534, 65534, 65534) != 0) return;
    line.write("there");
    line.read();
    const int fd = dial_local(door);
    char byte = 0;
    for (int i = 0; i < 60 && ::recv(fd, &byte, 1, MSG_DONTWAIT) != 0; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    line.write(::recv(fd, &byte, 1, MSG_DONTWAIT) == 0 ? "closed" : "kept");
    for (;;)
      if (const int again = dial_local(door); again >= 0) ::close(again);
  });
  EXPECT_EQ(scene.says(), "there");
  scene.tell(local_name());
  scene.begin();
  EXPECT_EQ(scene.says(), "closed");
  scene.measure_bystander("another user dials the local socket without end");
  scene.expect_alive();
}

// Control experiment: the cost of the same calls for a bystander when they reach no engine, that is, the machine's
// share of the cost. Two separate tests, because a scene forks, and after forking with threads ThreadSanitizer allows
// no new ones.
TEST(Unauthenticated, TheSameDialsThatReachNobodyForComparison) {
  Scene local("shm", [](ChildProcess::Line& line, const std::string&) {
    line.write("there");
    line.read();
    for (;;)
      if (const int fd = dial_local("nobody has this name"); fd >= 0) ::close(fd);
  });
  local.begin();
  local.measure_bystander("(for comparison) dials a name that nobody has, without end");
  local.end_attack();
}

TEST(Unauthenticated, TheSameConnectionsThatReachNobodyForComparison) {
  Scene tcp("tcp", [](ChildProcess::Line& line, const std::string&) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::listen(listener, 4096);
    crowd(
        line, [port = listening_ports().at(0)] { return dial_tcp(port); }, 2500, "");
  });
  tcp.begin();
  tcp.measure_bystander("(for comparison) 2500 connections to its own port, coming");
}

TEST(Unauthenticated, ARefusalForLackOfDescriptorsSaysSo) {
  Scene scene("tcp", [](ChildProcess::Line& line, const std::string& address) {
    auto engine = open_engine(options_of("late", "tcp"));
    line.write("there");
    line.read();
    const auto met = engine->connect(address, milliseconds(500));
    line.write(met.status().to_string());
  });
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  scene.begin();
  rlimit few = before;
  few.rlim_cur = 256;
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<int> taken;  // all that are left
  for (int fd; (fd = ::dup(0)) >= 0;) taken.push_back(fd);
  const std::string told = scene.says();
  for (const int fd : taken) ::close(fd);
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(told.find("out of file descriptors"), std::string::npos) << told;
  scene.measure_bystander("victim out of descriptors");
  scene.expect_alive();
}

}  // namespace
}  // namespace fairway::hostile

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "process/engine/soon.h"
#include "support/at_length.h"
#include "support/open_engine.h"

// Links between two processes that are cut whenever it happens: while they are used, proven, made or closed, and
// whichever side has heard of it.
namespace fairway {
namespace {

using control::ChildProcess;

// With time for links to come back in beside other work: what is claimed is not how soon.
EngineOptions patient(const std::string& name, const std::string& transport) {
  EngineOptions options = linked_by(name, transport);
  options.peer_timeout = std::chrono::milliseconds(5000);
  return options;
}

void lend_a_page(ChildProcess::Line& line, const std::string& transport) {
  auto engine = open_engine(patient("child", transport));
  if (!engine) return line.write(engine.status().to_string());
  const auto memory = engine->allocate(4096, Access::all);
  if (!memory || !engine->publish("memory", *memory)) return line.write("no memory");
  line.write(engine->address());
  line.read();
}

int option_of(int fd, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// Whether it is an end of a link, and not the control connection, which goes to that port.
bool is_link(int fd, std::uint16_t control_port) {
  if (option_of(fd, SO_ACCEPTCONN) != 0) return false;
  const int domain = option_of(fd, SO_DOMAIN), type = option_of(fd, SO_TYPE);
  if (domain == AF_UNIX) return type == SOCK_SEQPACKET;
  sockaddr_storage other{};
  socklen_t size = sizeof other;
  if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) != 0)
    return false;
  const in_port_t port = domain == AF_INET ? reinterpret_cast<const sockaddr_in&>(other).sin_port
                                           : reinterpret_cast<const sockaddr_in6&>(other).sin6_port;
  return ntohs(port) != control_port;
}

// How many ends of links of this process were shut down.
std::uint64_t cut(std::uint16_t control_port) {
  std::uint64_t found = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  while (const dirent* entry = ::readdir(folder))
    if (const int fd = std::atoi(entry->d_name); is_link(fd, control_port))
      found += ::shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
  ::closedir(folder);
  return found;
}

class CutLinks : public testing::TestWithParam<std::string> {};

TEST_P(CutLinks, AtAnyMomentComeBackAndNothingIsLostOrRepeated) {
  ChildProcess child([](auto& line) { lend_a_page(line, GetParam()); });
  const std::string address = child.read();
  auto engine = open_engine(patient("parent", GetParam()));
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto peer = engine->connect(address, kSoon);
  ASSERT_TRUE(peer) << address << ": " << peer.status().to_string();
  const auto remote = engine->lookup(*peer, "memory", kSoon);
  const auto ours = engine->allocate(4096, Access::none);
  ASSERT_TRUE(remote && ours);

  const auto port = static_cast<std::uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  std::atomic<bool> enough{false};
  std::atomic<std::uint64_t> cuts{0}, written{0};
  std::thread cutter([&] {
    std::minstd_rand random(1);
    // libfabric takes 40 ms to make a link, and more beside others: some are to come up between the cuts.
    const unsigned longest_us = GetParam().starts_with("fabric") ? 120'000 : 20'000;
    std::uint64_t written_before = 0;
    for (int cuts_since_then = 0; !enough;) {
      // Twice without a transfer in between, and no more: on a busy machine no link would ever come up.
      if (written != written_before) cuts_since_then = 0;
      written_before = written;
      if (cuts_since_then < 2) {
        const std::uint64_t found = cut(port);
        cuts += found;
        cuts_since_then += found > 0 ? 1 : 0;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random() % longest_us));
    }
  });
  RequestOptions options;
  options.notify.kind = NotifyKind::signal;
  options.notify.signal = {remote->id, 0};
  options.notify.signal_value = 1;
  options.notify.signal_add = true;
  Status status;
  std::uint64_t wanted = GetParam().starts_with("fabric") ? 20 : 40;
  if (!at_length()) wanted /= 4;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(45);
  while (status && cuts < wanted && std::chrono::steady_clock::now() < give_up) {
    ours->address[0] = static_cast<std::byte>(written.load() + 1);
    status = finish(*engine, engine->write(*peer, Extent{{ours->id, 0, 1}, {remote->id, 64}}, options));
    if (status) ++written;
  }
  enough = true;
  cutter.join();
  std::printf("  %llu transfers beside %llu cuts\n", static_cast<unsigned long long>(written.load()),
              static_cast<unsigned long long>(cuts.load()));
  ASSERT_TRUE(status) << status.to_string();
  EXPECT_GE(cuts, wanted);
  ASSERT_TRUE(finish(*engine, engine->read(*peer, Extent{{ours->id, 0, 72}, {remote->id, 0}})));
  std::uint64_t counted = 0;
  std::memcpy(&counted, ours->address, sizeof counted);
  EXPECT_EQ(counted, written);
  EXPECT_EQ(ours->address[64], static_cast<std::byte>(written.load()));
}

std::vector<std::string> cut_ones() {
  std::vector<std::string> all{"shm", "tcp"};
#ifdef FAIRWAY_HAVE_FABRIC
  all.emplace_back("fabric_tcp");
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Of, CutLinks, testing::ValuesIn(cut_ones()), [](const auto& each) { return each.param; });

}  // namespace
}  // namespace fairway

#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include "rdma_vm/ends.h"

// What is asked for and is not there, and limits of the system that are reached.
namespace fairway::rdma {
namespace {

using Clock = std::chrono::steady_clock;
using Limits = Ends;
using control::ChildProcess;

// Two engines of this process and a write between them; empty, or what went wrong.
std::string write_between(const EngineOptions& first, const EngineOptions& second, std::size_t links = 1) {
  auto a = Engine::open(first), b = Engine::open(second);
  if (!a) return "a: " + a.status().to_string();
  if (!b) return "b: " + b.status().to_string();
  const auto from = a->allocate(1 << 20, Access::none), to = b->allocate(1 << 20, Access::all);
  if (!from || !to) return "memory: " + (from ? to : from).status().to_string();
  if (const Status published = b->publish("memory", *to); !published) return published.to_string();
  const auto peer = a->connect(b->address());
  if (!peer) return "connect: " + peer.status().to_string();
  const auto remote = a->lookup(*peer, "memory");
  if (!remote) return "lookup: " + remote.status().to_string();
  for (std::uint64_t i = 0; i < from->size_bytes; ++i) from->address[i] = net::pattern(9, i);
  const auto id = a->write(*peer, Extent{{from->id, 0, 1 << 20}, {remote->id, 0}});
  if (!id) return "write: " + id.status().to_string();
  const auto done = a->wait(*id, net::kHang);
  if (!done || !done->status) return "write: " + (done ? done->status : done.status()).to_string();
  if (std::memcmp(from->address, to->address, 1 << 20) != 0) return "other bytes";
  const auto up = [&] {
    std::size_t count = 0;
    for (const LinkMetrics& link : a->metrics().links) count += link.up ? 1 : 0;
    return count;
  };
  for (int i = 0; i < 1000 && up() != links; ++i) std::this_thread::sleep_for(milliseconds(20));
  return up() == links ? "" : std::to_string(up()) + " links";
}

std::string refusal(const std::function<void(RdmaOptions&)>& change) {
  EngineOptions options = on("rxe0");
  change(options.rdma);
  auto engine = Engine::open(options);
  return engine ? "" : engine.status().message();
}

TEST_F(Limits, WhatNoPortHasIsRefusedWithWhatThereIs) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in: " << text;
  };
  has(refusal([](RdmaOptions& rdma) { rdma.devices = {"mlx5_9"}; }), "names mlx5_9, and this host has rxe0/1, rxe1/1");
  has(refusal([](RdmaOptions& rdma) { rdma.gid_index = 77; }),
      "no GID of index 77 (EngineOptions::rdma.gid_index); it has: 0 fe80");
  has(refusal([](RdmaOptions& rdma) { rdma.partition = 0x8123; }),
      "not in partition 0x8123 (EngineOptions::rdma.partition), only in 0xffff");
  has(refusal([](RdmaOptions& rdma) { rdma.timeout = 32; }), "timeout is 32: it must be 1 to 31");
}

TEST_F(Limits, AnotherAddressAndOtherClassesOfTrafficWork) {
  EngineOptions first = on("rxe0"), second = on("rxe1");
  for (EngineOptions* each : {&first, &second}) {
    each->rdma.gid_index = 2;  // the IPv6 one
    each->rdma.traffic_class = 106;
    each->rdma.service_level = 3;
    each->rdma.hop_limit = 2;
    each->rdma.partition = 0xffff;
  }
  EXPECT_EQ(write_between(first, second), "");
}

TEST_F(Limits, QueuePairsAreAsManyAsOneSideWants) {
  EngineOptions first = on("rxe0"), second = on("rxe1");
  second.rdma.queue_pairs = 4;
  EXPECT_EQ(write_between(first, second, 4), "");
  EXPECT_EQ(write_between(second, first, 4), "") << "whichever side connects";
}

TEST_F(Limits, EachLegOfABondHasAQueuePair) {
  must(
      "modprobe bonding max_bonds=0 && ip link add bond7 type bond mode balance-xor && ip link add l0 type dummy && "
      "ip link add l1 type dummy && ip link set l0 master bond7 && ip link set l1 master bond7 && "
      "ip link set bond7 mtu 4200 up && ip addr add 10.7.0.1/24 dev bond7 && rdma link add rxe7 type rxe netdev bond7");
  EXPECT_EQ(write_between(on("rxe7"), on("rxe7"), 2), "");
  must("rdma link del rxe7 && ip link del bond7");
}

TEST_F(Limits, PortsOfDifferentMtusMeetAtTheSmaller) {
  must("ip link set v1 mtu 1500");
  const std::string one = write_between(on("rxe0"), on("rxe1")), other = write_between(on("rxe1"), on("rxe0"));
  must("ip link set v1 mtu 4200; " FAIRWAY_WIRE " up v1");
  EXPECT_EQ(one, "");
  EXPECT_EQ(other, "");
  EngineOptions smaller = on("rxe1");
  smaller.rdma.mtu = 256;
  EXPECT_EQ(write_between(on("rxe0"), smaller), "");
}

// Both ports say 4096, as those do behind a switch that was not told of large packets.
TEST_F(Limits, AWireThatSwallowsLargePacketsAloneIsSaidWithItsRemedy) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(1000)));
  for (const char* end : {"v0", "v1"})
    must(std::string("tc qdisc add dev ") + end + " clsact && tc filter add dev " + end +
         " ingress matchall action police rate 10gbit burst 10m mtu 2000 conform-exceed drop/ok");
  EXPECT_TRUE(near().finish(near().write(64)));
  const Status large = near().finish(near().write(64 << 10));
  for (const char* end : {"v0", "v1"}) must(std::string("tc qdisc del dev ") + end + " clsact");
  EXPECT_EQ(large.code(), ErrorCode::link_failed);
  EXPECT_NE(large.message().find("packets of 4096 bytes"), std::string::npos) << large.message();
  ASSERT_TRUE(until_up(true));
  works();
}

TEST_F(Limits, APortWithoutAnAddressOrALinkIsSaidWithItsRemedy) {
  must(
      "modprobe dummy numdummies=0; ip link add d7 type dummy && ip link set d7 up && rdma link add rxe7 type rxe "
      "netdev d7");
  const auto seven = [](RdmaOptions& rdma) { rdma.devices = {"rxe7"}; };
  const std::string nowhere = refusal(seven);
  EXPECT_NE(nowhere.find("rxe7/1: it has no RoCE v2 address that is not link-local: give its interface an IP address"),
            std::string::npos)
      << nowhere;
  must("ip link set d7 down");
  const std::string down = refusal(seven);
  EXPECT_NE(down.find("rxe7/1: the port is not active: bring its link up"), std::string::npos) << down;
  must("rdma link del rxe7 && ip link del d7");
}

TEST_F(Limits, AUserWhoMayNotOpenTheDeviceIsToldWhichFile) {
  must("chmod 600 /dev/infiniband/uverbs0");
  ChildProcess child([](ChildProcess::Line& line) {
    if (::setresuid(65534, 65534, 65534) != 0) return line.write("no other user");
    const auto engine = Engine::open(on("rxe0"));
    line.write(engine ? "opened" : engine.status().message());
  });
  const std::string said = child.read();
  must("chmod 666 /dev/infiniband/uverbs0");
  EXPECT_NE(said.find("rxe0 cannot be opened (/dev/infiniband/uverbs0: Permission denied): this user needs to read and "
                      "write it"),
            std::string::npos)
      << said;
}

// 8 MiB of locked memory are what most systems allow, and no user may lock more.
TEST_F(Limits, AnUnprivilegedUserWithEightMebibytesOfLockedMemoryConnects) {
  ChildProcess child([](ChildProcess::Line& line) {
    const rlimit limit{8 << 20, 8 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      return line.write("no limit");
    const std::string wrong = write_between(on("rxe0"), on("rxe1"));
    line.write(wrong.empty() ? "well" : wrong);
  });
  EXPECT_EQ(child.read(), "well");
}

TEST_F(Limits, TooLittleLockedMemoryIsSaidWithItsRemedy) {
  ChildProcess child([](ChildProcess::Line& line) {
    const rlimit limit{512 << 10, 512 << 10};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(65534, 65534, 65534) != 0)
      return line.write("no limit");
    const auto engine = Engine::open(on("rxe0"));
    line.write(engine ? "opened" : engine.status().message());
  });
  const std::string said = child.read();
  EXPECT_NE(said.find("raise the limit of locked memory (ulimit -l"), std::string::npos) << said;
}

// Writes a part of a region of 64 MiB between two engines that have verbs and `other`; which way it went and why not
// the other way, or what went wrong.
std::string way_of_large_memory(const std::string& other) {
  constexpr std::uint64_t kBytes = 64 << 20, kPart = 1 << 20;
  EngineOptions first = on("rxe0"), second = on("rxe1");
  first.transports = second.transports = {"verbs", other};
  auto a = Engine::open(first), b = Engine::open(second);
  if (!a || !b) return (a ? b : a).status().to_string();
  const auto from = a->allocate(kBytes, Access::none), to = b->allocate(kBytes, Access::all);
  if (!from || !to) return "memory: " + (from ? to : from).status().to_string();
  if (const Status published = b->publish("memory", *to); !published) return published.to_string();
  const auto peer = a->connect(b->address());
  if (!peer) return "connect: " + peer.status().to_string();
  const auto remote = a->lookup(*peer, "memory");
  if (!remote) return "lookup: " + remote.status().to_string();
  for (std::uint64_t i = 0; i < kPart; ++i) from->address[i] = net::pattern(3, i);
  Request request;
  request.peer = *peer;
  request.layout = Extent{{from->id, 0, kPart}, {remote->id, 0}};
  const auto id = a->write(*peer, request.layout);
  if (!id) return "write: " + id.status().to_string();
  const auto done = a->wait(*id, net::kHang);
  if (!done || !done->status) return "write: " + (done ? done->status : done.status()).to_string();
  if (std::memcmp(from->address, to->address, kPart) != 0) return "other bytes";
  std::string text;
  // Until its link is up and passed over for the memory; before, it is one that is not connected or not proven yet.
  for (int i = 0; i < 500 && text.find("locked memory") == text.npos; ++i) {
    if (i != 0) std::this_thread::sleep_for(milliseconds(20));
    const auto told = a->explain(request);
    if (!told) return told.status().to_string();
    text.clear();
    for (const ExplainedLink& link : told->links)
      text += (link.taken ? "takes " : "not ") + link.name + ": " + link.reason + "; ";
  }
  return text;
}

TEST_F(Limits, MemoryThatCannotBePinnedTakesTheNextTransportAndExplainSaysWhy) {
  for (const char* other : {"tcp", "shm"}) {
    ChildProcess child([other](ChildProcess::Line& line) {
      const rlimit limit{8 << 20, 8 << 20};  // and with root's identity goes CAP_IPC_LOCK
      if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setresuid(65534, 65534, 65534) != 0)
        return line.write("no limit");
      line.write(way_of_large_memory(other));
    });
    const std::string told = child.read();
    EXPECT_NE(told.find(std::string("takes ") + other), std::string::npos) << told;
    EXPECT_EQ(told.find("takes verbs"), std::string::npos) << told;
    const auto verbs = told.find("not verbs");
    ASSERT_NE(verbs, std::string::npos) << told;
    EXPECT_NE(told.find("raise the limit of locked memory (ulimit -l", verbs), std::string::npos) << told;
  }
}

TEST_F(Limits, QueuePairsThatACgroupForbidsAreSaidAndBytesTakeTheNextTransport) {
  const std::string folder = "/sys/fs/cgroup/few";
  must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup");
  must("echo +rdma >/sys/fs/cgroup/cgroup.subtree_control; mkdir " + folder +
       " && echo 'rxe1 hca_handle=max hca_object=7' >" + folder + "/rdma.max");
  EngineOptions there = on("rxe1"), here = on("rxe0");
  there.transports = here.transports = {"verbs", "tcp"};
  far_.emplace(there, [&] { must("echo " + std::to_string(::getpid()) + " >" + folder + "/cgroup.procs"); });
  ASSERT_EQ(far_->failure, "");
  near_.emplace(here);
  ASSERT_TRUE(near_->meet(far_->address));
  works();
  EXPECT_EQ(near_->links_text().find("verbs"), std::string::npos) << near_->links_text();
  Request request;
  request.peer = near_->peer;
  request.layout = Extent{{near_->ours.id, 0, 4096}, {near_->remote.id, 0}};
  std::string told;  // the transport tries again and again, and while it does its link is on its way
  for (int i = 0; i < 500 && told.find("rdma.max") == told.npos; ++i) {
    if (i != 0) std::this_thread::sleep_for(milliseconds(20));
    const auto explained = near_->engine->explain(request);
    ASSERT_TRUE(explained);
    told = explained->text();
  }
  EXPECT_NE(told.find("rdma.max"), std::string::npos) << told;
}

// The first object of the kernel's that is refused is a domain, then a region, a completion queue, a queue pair, those
// of links and of memory: whichever it is, the engine says so, or does without.
TEST_F(Limits, WhicheverObjectACgroupForbidsIsSaidOrDoneWithout) {
  const std::string folder = "/sys/fs/cgroup/fewer";
  must("mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup");
  must("echo +rdma >/sys/fs/cgroup/cgroup.subtree_control; mkdir " + folder);
  EngineOptions there = on("rxe1"), here = on("rxe0");
  there.transports = here.transports = {"verbs", "tcp"};
  int refused = 0, by_tcp = 0, by_verbs = 0;
  for (int most = 1; most <= (at_length() ? 20 : 12); ++most) {
    must("echo 'rxe1 hca_handle=max hca_object=" + std::to_string(most) + "' >" + folder + "/rdma.max");
    far_.emplace(there, [&] { must("echo " + std::to_string(::getpid()) + " >" + folder + "/cgroup.procs"); });
    if (!far_->failure.empty()) {
      EXPECT_NE(far_->failure.find("rdma.max"), std::string::npos) << most << ": " << far_->failure;
      ++refused;
      continue;
    }
    near_.emplace(here);
    ASSERT_TRUE(near_->meet(far_->address)) << most;
    works();
    (near_->links_text().find("verbs") == std::string::npos ? by_tcp : by_verbs) += 1;
    TearDown();
  }
  std::printf("  %d objects were too few to open, %d for a link, %d enough\n", refused, by_tcp, by_verbs);
  EXPECT_GT(refused, 0);
  EXPECT_GT(by_tcp, 0);
}

TEST_F(Limits, WhatAPortCountsOfErrorsIsThatPortsOwn) {
  const auto engine = Engine::open(on("rxe0"));
  ASSERT_TRUE(engine) << engine.status().to_string();
  bool retries = false;
  for (const PortCounter& counter : engine->port_counters()) {
    EXPECT_EQ(counter.port, "rxe0/1");
    EXPECT_NE(counter.name, "sent_pkts");
    retries |= counter.name == "completer_retry_err";
  }
  EXPECT_TRUE(retries);
}

TEST_F(Limits, ManyQueuePairsOfOneProcessWork) {
  const int kEngines = at_length() ? 16 : 2;  // each has 32, and so has the other side
  EngineOptions options = on("rxe0", milliseconds(30'000));
  options.rdma.queue_pairs = 32;
  auto hub = Engine::open(options);
  ASSERT_TRUE(hub);
  options.rdma.devices = {"rxe1"};
  std::vector<Engine> others;
  const auto memory = hub->allocate(1 << 20, Access::all);
  ASSERT_TRUE(memory && hub->publish("memory", *memory));
  const auto start = Clock::now();
  for (int i = 0; i < kEngines; ++i) {
    auto other = Engine::open(options);
    ASSERT_TRUE(other) << other.status().to_string();
    others.push_back(std::move(*other));
    const auto peer = others.back().connect(hub->address(), net::kHang);
    ASSERT_TRUE(peer) << peer.status().to_string();
    const auto remote = others.back().lookup(*peer, "memory");
    const auto from = others.back().allocate(1 << 20, Access::none);
    ASSERT_TRUE(remote && from);
    const auto id = others.back().write(*peer, Extent{{from->id, 0, 1 << 20}, {remote->id, 0}});
    ASSERT_TRUE(id);
    const auto done = others.back().wait(*id, net::kHang);
    ASSERT_TRUE(done && done->status) << i;
  }
  const auto up = [&] {
    std::size_t count = 0;
    for (const LinkMetrics& link : hub->metrics().links) count += link.up ? 1 : 0;
    return count;
  };
  const auto all = static_cast<std::size_t>(32 * kEngines);
  for (int i = 0; i < 1000 && up() != all; ++i) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(up(), all);
  tell("until " + std::to_string(2 * all) + " queue pairs were up", since(start));
}

}  // namespace
}  // namespace fairway::rdma

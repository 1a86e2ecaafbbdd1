#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "process/nccl/ring.h"
#include "support/cuda/device_memory.h"

// The plugin over RDMA devices, for a guest that has them.
namespace fairway::nccl {
namespace {

TEST(NcclVerbs, EverySizeAroundARingOfTwo) {
  ::setenv("FAIRWAY_TRANSPORTS", "verbs", 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("FAIRWAY_PEER_TIMEOUT_MS", "20000", 1);  // the guest is slow
  Ranks ranks(2, [](Board& board, int rank) {
    ring(board, rank, 2, 12, 40);
    if (!says(" by verbs/")) throw Failure("not over verbs: " + said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

// Each of the guest's devices as one of NCCL's, which uses its port alone.
TEST(NcclVerbs, PortsAreRailsThatNcclMayFuse) {
  std::vector<std::string> ports;
  for (const auto& each : std::filesystem::directory_iterator("/sys/class/infiniband"))
    ports.push_back(each.path().filename());
  ASSERT_FALSE(ports.empty());
  std::sort(ports.begin(), ports.end());
  std::string rails;
  for (const std::string& port : ports) rails += (rails.empty() ? "" : ",") + port;
  ::setenv("FAIRWAY_TRANSPORTS", "verbs", 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("FAIRWAY_RAILS", rails.c_str(), 1);
  ::setenv("FAIRWAY_PEER_TIMEOUT_MS", "20000", 1);
  Ranks ranks(2, [&](Board& board, int rank) {
    ring(board, rank, 2, 12, 20);
    if (!says(" by verbs/" + ports.front())) throw Failure("not over its port: " + said());
    for (const std::string& other : ports)
      if (other != ports.front() && said().find("verbs/" + other) != std::string::npos)
        throw Failure("over " + other + ": " + said());
  });
  EXPECT_EQ(ranks.outcomes(), "");
  Ranks alone(1, [&](Board&, int) {
    const auto table = open_table(12);
    Facts facts;
    if (table->init(logger) != abi::kSuccess || table->devices() != static_cast<int>(ports.size()))
      throw Failure(said());
    for (int i = 0; i < table->devices(); ++i)
      if (table->properties(i, facts) != abi::kSuccess || facts.name != "fairway:" + ports[static_cast<std::size_t>(i)])
        throw Failure(facts.name + said());
    if (table->finalize() != abi::kSuccess) throw Failure("finalize");
  });
  EXPECT_EQ(alone.outcomes(), "");
  ::unsetenv("FAIRWAY_RAILS");
}

// An address of the guest's beyond loopback.
std::string own_address() {
  ifaddrs* all = nullptr;
  std::string found;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  ::freeifaddrs(all);
  return found;
}

// soft-RoCE takes no GPU memory: the kernel's own refusal is what NCCL's log has.
TEST(NcclVerbs, GpuMemoryBetweenHostsIsOfferedToNicsAndTheirRefusalTold) {
  const std::string address = own_address();
  if (address.empty()) GTEST_SKIP() << "no address beyond loopback";
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
  ::setenv("FAIRWAY_GPU_MEMORY", "on", 1);
  ::setenv("FAIRWAY_LISTEN", address.c_str(), 1);
  ::setenv("FAIRWAY_JOB_KEY", "of the test", 1);
  ::unsetenv("FAIRWAY_TRANSPORTS");
  Ranks ranks(2, [&](Board& board, int number) {
    support::DeviceMemory gpus;
    Rank rank(board, number, 2, 12);
    if (rank.facts.pointers != (abi::kPointerHost | abi::kPointerCuda | abi::kPointerDmaBuf)) throw Failure(said());
    rank.meet(1 - number, 1 - number);
    void* memory = nullptr;
    const abi::Code code =
        rank.table->register_memory(rank.receiver, gpus.allocate(1 << 20, 0), 1 << 20, abi::kPointerCuda, &memory);
    if (code == abi::kSuccess || said().find("by dma-buf: ibv_reg_dmabuf_mr: ") == std::string::npos)
      throw Failure("not refused: " + said());
    rank.barrier(0);
    rank.leave();
  });
  EXPECT_EQ(ranks.outcomes(), "");
}

}  // namespace
}  // namespace fairway::nccl

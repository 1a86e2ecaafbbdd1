#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include "rdma_vm/ends.h"
#include "support/cuda/device_memory.h"

// Kinds of memory on a real kernel, and what registering costs there.
namespace fairway::rdma {
namespace {

using Clock = std::chrono::steady_clock;
using Memory = Ends;

class Pages {
 public:
  Pages(std::size_t size, int flags)
      : size_(size),
        at_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | flags, -1, 0)) {}
  ~Pages() {
    if (*this) ::munmap(at_, size_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  explicit operator bool() const { return at_ != MAP_FAILED; }
  [[nodiscard]] std::byte* at() const { return static_cast<std::byte*>(at_); }

 private:
  const std::size_t size_;
  void* const at_;
};

TEST_F(Memory, OfHugePagesMovesLikeAnyOther) {
  constexpr std::size_t kBytes = 8 << 20;
  std::ofstream("/proc/sys/vm/nr_hugepages") << 8 << std::flush;
  const Pages from(kBytes, MAP_HUGETLB), to(kBytes, MAP_HUGETLB);
  ASSERT_TRUE(from && to) << "this kernel gave no huge pages";
  auto a = Engine::open(on("rxe0")), b = Engine::open(on("rxe1"));
  ASSERT_TRUE(a && b);
  const auto source = a->register_memory(from.at(), kBytes, Access::none);
  const auto target = b->register_memory(to.at() + 4096, kBytes - 4096, Access::all);
  ASSERT_TRUE(source) << source.status().to_string();
  ASSERT_TRUE(target) << target.status().to_string();
  ASSERT_TRUE(b->publish("memory", *target));
  const auto peer = a->connect(b->address());
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto remote = a->lookup(*peer, "memory");
  ASSERT_TRUE(remote);
  for (std::size_t i = 0; i < kBytes; ++i) from.at()[i] = net::pattern(5, i);
  const auto id = a->write(*peer, Extent{{source->id, 100, kBytes - 5000}, {remote->id, 50}});
  ASSERT_TRUE(id);
  const auto done = a->wait(*id, net::kHang);
  ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
  EXPECT_EQ(std::memcmp(from.at() + 100, to.at() + 4096 + 50, kBytes - 5000), 0);
  EXPECT_TRUE(a->deregister(*source));
  EXPECT_TRUE(b->deregister(*target));
}

// libibverbs has the call, the kernel's software device does not.
TEST_F(Memory, OfAGpuIsRefusedWithTheKernelsReasons) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  auto engine = Engine::open(on("rxe0"));
  ASSERT_TRUE(engine);
  const Status refused = engine->register_memory(bytes, 1 << 20, Access::all).status();
  EXPECT_EQ(refused.code(), ErrorCode::unsupported);
  for (const char* part :
       {"GPU memory cannot be registered", "by dma-buf: ibv_reg_dmabuf_mr: ", "by address: Bad address"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  gpus.free(bytes);
}

TEST_F(Memory, IsPinnedWhereTheDeviceHasNoOnDemandPaging) {
  EngineOptions options = on("rxe0"), other = on("rxe1");
  options.rdma.on_demand = OnDemand::always;
  auto a = Engine::open(options), b = Engine::open(other);
  ASSERT_TRUE(a && b);
  const auto from = a->allocate(4096, Access::none), to = b->allocate(4096, Access::all);
  ASSERT_TRUE(from && to && b->publish("memory", *to));
  const auto peer = a->connect(b->address());
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto remote = a->lookup(*peer, "memory");
  ASSERT_TRUE(remote);
  Request request;
  request.peer = *peer;
  request.layout = Extent{{from->id, 0, 4096}, {remote->id, 0}};
  const auto told = a->explain(request);
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("rxe0/1 pinned; no on-demand paging: the device has no on-demand paging"),
            std::string::npos)
      << told->text();
}

// Figures for docs/verbs.md: regions below what a thread is started for go port by port, a large one to both at once.
TEST_F(Memory, TellsWhatRegisteringCosts) {
  constexpr std::size_t kBytes = 256 << 20, kPart = 2 << 20;
  EngineOptions both = on("rxe0");
  both.rdma.devices = {"rxe0", "rxe1"};
  const auto measure = [](const EngineOptions& options, std::byte* memory, std::size_t part, const std::string& what) {
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine) << engine.status().to_string();
    std::vector<Region> regions;
    auto began = Clock::now();
    for (std::size_t at = 0; at < kBytes; at += part) {
      const auto region = engine->register_memory(memory + at, part, Access::all);
      ASSERT_TRUE(region) << region.status().to_string();
      regions.push_back(*region);
    }
    tell(what + ", registered", since(began));
    began = Clock::now();
    for (const Region& region : regions) ASSERT_TRUE(engine->deregister(region));
    tell(what + ", ended", since(began));
  };
  const Pages pages(kBytes, 0);
  ASSERT_TRUE(pages);
  measure(on("rxe0"), pages.at(), kBytes, "256 MiB at one port");
  measure(both, pages.at(), kPart, "256 MiB in parts of 2 MiB at two ports, one after the other");
  measure(both, pages.at(), kBytes, "256 MiB at two ports at once");
  std::ofstream("/proc/sys/vm/nr_hugepages") << 160 << std::flush;
  const Pages huge(kBytes, MAP_HUGETLB);
  if (huge) measure(on("rxe0"), huge.at(), kBytes, "256 MiB of huge pages at one port");
  std::ofstream("/proc/sys/vm/nr_hugepages") << 0 << std::flush;
}

}  // namespace
}  // namespace fairway::rdma

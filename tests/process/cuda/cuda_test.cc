#include <cstring>
#include <ostream>

#include <dlfcn.h>

#include "process/cuda/gpu_pair.h"

// GPU memory between two processes.
namespace fairway {
namespace {

using namespace gpu_pair;

// Memory of the child's, and the transports of both; of the last three every byte is staged.
struct Way {
  const char* name;
  const char* kind;
  std::vector<std::string> transports;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

class CudaProcess : public GpuPair, public testing::WithParamInterface<Way> {
 protected:
  void meet_as_given() { meet(GetParam().kind, GetParam().transports); }
};

TEST_P(CudaProcess, EveryByteComesBackFromEveryKindOfMemory) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const auto out = patterns(1, kBytes);
  const Region from = on_gpu(), into = on_gpu();
  EXPECT_EQ(from.kind, MemoryKind::device);
  EXPECT_EQ(remote_.kind, MemoryKind::device);
  gpus_->write(from.address, out);
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4097}, kBytes}) {
    ASSERT_TRUE(write(from, length)) << length;
    const Status status = read(into, length);
    ASSERT_TRUE(status) << status.to_string();
    EXPECT_EQ(content(into, length), std::vector(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length)));
  }
  // From and to ordinary memory, which only the kernel reaches, and memory that peers map.
  std::vector<std::byte> plain = patterns(2, kBytes);
  const auto ordinary = engine_->register_memory(plain.data(), kBytes, Access::none);
  const auto shared = engine_->allocate(kBytes, Access::none);
  ASSERT_TRUE(ordinary && shared);
  ASSERT_TRUE(write(*ordinary, kBytes));
  ASSERT_TRUE(read(*shared, kBytes));
  EXPECT_EQ(std::memcmp(plain.data(), shared->address, kBytes), 0);

  constexpr std::uint64_t kPage = 4096, kPages = 512;
  std::vector<std::uint64_t> straight(kPages), mixed(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    straight[i] = i;
    mixed[i] = i * 307 % kPages;
  }
  ASSERT_TRUE(
      finish(*engine_, engine_->write(peer_, Paged{from.id, remote_.id, kPage, kPage, kPage, straight, mixed})));
  ASSERT_TRUE(finish(*engine_, engine_->read(peer_, Paged{into.id, remote_.id, kPage, kPage, kPage, straight, mixed})));
  EXPECT_EQ(content(into, kPage * kPages), std::vector(out.begin(), out.begin() + kPage * kPages));
  mixed[7] = kBytes / kPage;
  const Status outside =
      finish(*engine_, engine_->write(peer_, Paged{from.id, remote_.id, kPage, kPage, kPage, straight, mixed}));
  EXPECT_EQ(outside.code(), ErrorCode::out_of_range);
}

// A kernel that takes pages reaches memory of the host's only where it is pinned: small lists never make it so, larger
// ones do while the first copies are under way.
TEST_P(CudaProcess, PagesOfOrdinaryMemoryGoAndComeFromTheFirstListOn) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const auto plain = engine_->lookup(peer_, "plain", kSoon);
  ASSERT_TRUE(plain);
  for (const std::uint64_t page : {512, 4096}) {
    const std::uint64_t pages = page == 512 ? 32 : 512;
    std::vector<std::byte> out = patterns(page, kBytes), back(kBytes);
    const auto from = engine_->register_memory(out.data(), kBytes, Access::none);
    const auto into = engine_->register_memory(back.data(), kBytes, Access::none);
    ASSERT_TRUE(from && into);
    const Region on = on_gpu();
    std::vector<std::uint64_t> straight(pages), mixed(pages);
    for (std::uint64_t i = 0; i < pages; ++i) {
      straight[i] = i;
      mixed[i] = i * 13 % pages;
    }
    const auto move = [&](bool writes, const Region& local, const RemoteRegion& remote) {
      const Paged paged{local.id, remote.id, page, 2 * page, 2 * page, straight, mixed};
      return finish(*engine_, writes ? engine_->write(peer_, paged) : engine_->read(peer_, paged));
    };
    ASSERT_TRUE(move(true, *from, remote_)) << page;  // the host's, to the peer's GPU
    ASSERT_TRUE(move(false, on, remote_)) << page;    // GPU to GPU
    ASSERT_TRUE(move(true, on, *plain)) << page;      // a GPU's, to the peer's host
    ASSERT_TRUE(move(false, on, *plain)) << page;
    ASSERT_TRUE(move(true, on, remote_)) << page;
    ASSERT_TRUE(move(false, *into, remote_)) << page;
    for (std::uint64_t i = 0; i < pages; ++i)
      ASSERT_EQ(std::memcmp(back.data() + i * 2 * page, out.data() + i * 2 * page, page), 0) << i << " of " << page;
    ASSERT_TRUE(engine_->deregister(*from, kSoon));
    ASSERT_TRUE(engine_->deregister(*into, kSoon));
  }
}

// A kernel that waits for the peer's bytes keeps the driver from opening what moves them.
TEST_P(CudaProcess, AfterAWriteOfNoBytesNothingIsOpenedAnyMore) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto slow_calls = reinterpret_cast<unsigned long (*)()>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_slow_calls"));
  if (slow_calls == nullptr) GTEST_SKIP() << "the real driver does not count";
  const unsigned long first = slow_calls();
  const Region from = on_gpu(), into = on_gpu();
  EXPECT_GT(slow_calls(), first) << "queues are made when memory is registered";
  ASSERT_TRUE(write(from, 0));
  const unsigned long before = slow_calls();
  constexpr std::uint64_t kPage = 4096, kPages = 512;
  std::vector<std::uint64_t> index(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) index[i] = i;
  ASSERT_TRUE(write(from, 8));
  ASSERT_TRUE(read(into, kBytes));
  ASSERT_TRUE(finish(*engine_, engine_->write(peer_, Paged{into.id, remote_.id, kPage, kPage, kPage, index, index})));
  EXPECT_EQ(slow_calls(), before);
}

TEST_P(CudaProcess, MessagesOfEverySizeArriveInGpuMemory) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const auto out = patterns(3, kBytes);
  const Region from = on_gpu(), into = on_gpu();
  gpus_->write(from.address, out);
  const auto host = engine_->allocate(kBytes, Access::none);
  ASSERT_TRUE(host);
  std::memcpy(host->address, out.data(), kBytes);
  // A small one of the host's travels with its announcement, and finds memory there that no CPU may write.
  for (const auto& [source, length] : {std::pair(*host, std::uint64_t{100}), std::pair(from, std::uint64_t{100}),
                                       std::pair(from, std::uint64_t{1} << 20)}) {
    const auto answer = engine_->receive(peer_, 2, {into.id, 0, kBytes});
    const Status sent = finish(*engine_, engine_->send(peer_, 1, {source.id, 0, length}));
    ASSERT_TRUE(sent) << sent.to_string();
    const Status got = finish(*engine_, answer);
    ASSERT_TRUE(got) << got.to_string();
    EXPECT_EQ(content(into, length), std::vector(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length)));
  }
}

TEST_P(CudaProcess, ASignalIsSetInGpuMemoryAfterTheBytes) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const Region from = on_gpu(), into = on_gpu();
  gpus_->write(from.address, patterns(5, kBytes));
  RequestOptions options;
  options.notify.kind = NotifyKind::signal;
  options.notify.signal = {remote_.id, kBytes - 64};
  for (std::uint64_t turn = 1; turn <= 50; ++turn) {
    options.notify.signal_value = turn << 40 | turn;
    const auto id = engine_->write(peer_, Extent{{from.id, 0, 1 << 20}, {remote_.id, 0}}, options);
    const auto done = id ? engine_->wait(*id, kSoon) : Result<Completion>(id.status());
    ASSERT_TRUE(done && done->status) << done.status().to_string();
    EXPECT_EQ(done->bytes, 1u << 20);
    ASSERT_TRUE(finish(*engine_, engine_->read(peer_, Extent{{into.id, 0, 64}, {remote_.id, kBytes - 64}})));
    std::uint64_t seen = 0;
    std::memcpy(&seen, content(into, 8).data(), 8);
    EXPECT_EQ(seen, options.notify.signal_value);
  }
}

TEST_P(CudaProcess, WhoTakesItsMemoryBackIsLeftAlone) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const Region from = on_gpu(), into = on_gpu();
  std::uint64_t refused = 0;
  for (int i = 0; i < 3; ++i) {
    const auto answer = engine_->receive(peer_, 2, {into.id, 0, kBytes});
    ASSERT_TRUE(finish(*engine_, engine_->send(peer_, 1, {from.id, 0, 1000})));
    ASSERT_TRUE(finish(*engine_, answer));
  }
  for (int i = 0; i < 100; ++i) {  // meanwhile the child deregisters
    const Status status = write(from, kBytes);
    if (!status) ++refused;
    gpus_->write(from.address, patterns(static_cast<std::uint64_t>(i), 4096));
    if (refused == 1) {
      EXPECT_EQ(status.code(), ErrorCode::revoked) << status.to_string();
    }
  }
  EXPECT_EQ(child_->read(), "fenced");
  EXPECT_GT(refused, 0u);
}

TEST_P(CudaProcess, AKilledPeerEndsEveryTransferAndFreesTheMemory) {
  ASSERT_NO_FATAL_FAILURE(meet_as_given());
  const Region from = on_gpu();
  std::vector<TransferId> ids;
  constexpr std::uint64_t kPart = kBytes / 16;  // each its own: copies run side by side
  for (std::uint64_t at = 0; at < kBytes; at += kPart) {
    const auto id = engine_->write(peer_, Extent{{from.id, at, kPart}, {remote_.id, at}});
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  child_->kill();
  for (const TransferId id : ids) ASSERT_TRUE(engine_->wait(id, kSoon));
  const Status fenced = engine_->deregister(from, kSoon);
  EXPECT_TRUE(fenced) << fenced.to_string();
}

INSTANTIATE_TEST_SUITE_P(Of, CudaProcess,
                         testing::Values(Way{"malloc", "malloc", kAll}, Way{"mapped", "mapped", kAll},
                                         Way{"expanded", "expanded", kAll}, Way{"locked", "locked", kAll},
                                         Way{"staged_shm", "malloc", {"staged", "shm"}},
                                         Way{"staged_tcp", "malloc", {"staged", "tcp"}}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace fairway

// size: one file, since the child is forked before the driver has threads in the test's process
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/cuda/device_memory.h"

// GPU memory between two processes, on the stand-in driver, or on the one that FAIRWAY_CUDA_DRIVER names.
namespace fairway {
namespace {

using control::ChildProcess;
using support::DeviceMemory;

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::uint64_t kBytes = 4u << 20;

EngineOptions options_of(const std::string& name) {
  EngineOptions options;
  options.name = name;
  options.transports = {"shm", "cuda", "tcp"};
  options.peer_timeout = std::chrono::milliseconds(1000);
  return options;
}

std::byte pattern(std::uint64_t seed, std::uint64_t i) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 29 + seed * 197) >> 1);
}
std::vector<std::byte> patterns(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = pattern(seed, i);
  return bytes;
}

std::byte* make(DeviceMemory& gpus, const std::string& kind, int device) {
  if (kind == "malloc") return gpus.allocate(kBytes, device);
  return gpus.map(kBytes, device, kind == "mapped");
}

// Publishes memory of that kind on its GPU 1, sends what it receives under tag 1 back under tag 2, and deregisters when
// it is told to.
void serve(ChildProcess::Line& line, const std::string& kind) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  DeviceMemory gpus;
  auto engine = Engine::open(options_of("child"));
  if (!engine) return line.write(engine.status().to_string());
  const int device = gpus.devices() > 1 ? 1 : 0;
  std::byte* bytes = make(gpus, kind, device);
  std::byte* letters = make(gpus, kind, device);
  const auto memory = engine->register_memory(bytes, kBytes, Access::all);
  const auto letter = engine->register_memory(letters, kBytes, Access::none);
  if (!memory || !letter || !engine->publish("memory", *memory))
    return line.write("no memory: " + memory.status().to_string());
  line.write(engine->address());
  std::array<PeerEvent, 1> events;
  while (engine->wait_peer_event(kSoon))
    while (engine->poll_peer_events(events) == 1) {
      if (events[0].kind == PeerEvent::Kind::down) return;
      if (events[0].kind != PeerEvent::Kind::up) continue;
      for (int i = 0; i < 3; ++i) {
        const auto in = engine->receive(events[0].peer, 1, {letter->id, 0, kBytes});
        if (!in) return;
        const auto got = engine->wait(*in, kSoon);
        if (!got || !got->status) return;
        const auto out = engine->send(events[0].peer, 2, {letter->id, 0, got->bytes});
        if (out) (void)engine->wait(*out, kSoon);
      }
      const Status fenced = engine->deregister(*memory, kSoon);
      std::vector<std::byte> before(kBytes), after(kBytes);
      gpus.read(before, bytes, device);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gpus.read(after, bytes, device);
      line.write(!fenced ? fenced.to_string() : before == after ? "fenced" : "written after the fence");
    }
}

Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

// The parent's side: an engine, its GPUs, the child's memory. The child is forked before the driver has threads here.
class CudaProcess : public testing::TestWithParam<std::string> {
 protected:
  void meet(const std::string& kind) {
    child_ = std::make_unique<ChildProcess>([kind](auto& line) { serve(line, kind); });
    const std::string address = child_->read();
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    gpus_ = std::make_unique<DeviceMemory>();
    auto engine = Engine::open(options_of("parent"));
    ASSERT_TRUE(engine) << engine.status().to_string();
    engine_ = std::make_unique<Engine>(std::move(*engine));
    const auto peer = engine_->connect(address, kSoon);
    ASSERT_TRUE(peer) << address << ": " << peer.status().to_string();
    peer_ = *peer;
    const auto remote = engine_->lookup(peer_, "memory", kSoon);
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  Region on_gpu(std::uint64_t size = kBytes) {
    places_.push_back(gpus_->allocate(size, 0));
    return engine_->register_memory(places_.back(), size, Access::read | Access::write).value();
  }
  std::vector<std::byte> content(const Region& region, std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size != 0) gpus_->read(bytes, region.address);
    return bytes;
  }
  Status write(const Region& from, std::uint64_t length) {
    return finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, length}, {remote_.id, 0}}));
  }
  Status read(const Region& into, std::uint64_t length) {
    return finish(*engine_, engine_->read(peer_, Extent{{into.id, 0, length}, {remote_.id, 0}}));
  }
  ~CudaProcess() override {
    engine_.reset();
    for (std::byte* place : places_) gpus_->free(place);
  }

  std::unique_ptr<ChildProcess> child_;
  std::unique_ptr<DeviceMemory> gpus_;
  std::unique_ptr<Engine> engine_;
  PeerId peer_;
  RemoteRegion remote_;
  std::vector<std::byte*> places_;
};

TEST_P(CudaProcess, EveryByteComesBackFromEveryKindOfMemory) {
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
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

// A kernel that waits for the peer's bytes keeps the driver from opening what moves them.
TEST_P(CudaProcess, AfterAWriteOfNoBytesNothingIsOpenedAnyMore) {
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto slow_calls = reinterpret_cast<unsigned long (*)()>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_slow_calls"));
  if (slow_calls == nullptr) GTEST_SKIP() << "the real driver does not count";
  const Region from = on_gpu(), into = on_gpu();
  ASSERT_TRUE(write(from, 0));
  const unsigned long before = slow_calls();
  EXPECT_GT(before, 0u);
  constexpr std::uint64_t kPage = 4096, kPages = 512;
  std::vector<std::uint64_t> index(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) index[i] = i;
  ASSERT_TRUE(write(from, 8));
  ASSERT_TRUE(read(into, kBytes));
  ASSERT_TRUE(finish(*engine_, engine_->write(peer_, Paged{into.id, remote_.id, kPage, kPage, kPage, index, index})));
  EXPECT_EQ(slow_calls(), before);
}

TEST_P(CudaProcess, MessagesOfEverySizeArriveInGpuMemory) {
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
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
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
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
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
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
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
  const Region from = on_gpu();
  std::vector<TransferId> ids;
  for (int i = 0; i < 20; ++i) {
    const auto id = engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}});
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  child_->kill();
  for (const TransferId id : ids) ASSERT_TRUE(engine_->wait(id, kSoon));
  const Status fenced = engine_->deregister(from, kSoon);
  EXPECT_TRUE(fenced) << fenced.to_string();
}

INSTANTIATE_TEST_SUITE_P(Of, CudaProcess, testing::Values("malloc", "mapped"),
                         [](const auto& row) { return row.param; });

using CudaLife = CudaProcess;

// A stream of the user's that stands until it is let go, and what stands behind it.
TEST_F(CudaLife, ATransferWaitsForAStreamAndAStreamForATransfer) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  const Region from = on_gpu(), into = on_gpu();
  ASSERT_TRUE(write(from, kBytes));  // all is open by now
  const auto& cu = gpus_->driver();
  sys::cuda::Stream work = nullptr, after = nullptr;
  sys::cuda::Event before = nullptr, done = nullptr;
  void* words = nullptr;
  gpus_->on(0, [&] {
    gpus_->check(cu->cuStreamCreateWithPriority(&work, sys::cuda::kStreamNonBlocking, 0), "stream");
    gpus_->check(cu->cuStreamCreateWithPriority(&after, sys::cuda::kStreamNonBlocking, 0), "stream");
    gpus_->check(cu->cuEventCreate(&before, sys::cuda::kEventDisableTiming), "event");
    gpus_->check(cu->cuEventCreate(&done, sys::cuda::kEventDisableTiming), "event");
    gpus_->check(cu->cuMemHostAlloc(&words, 64, sys::cuda::kHostPortable), "word");
    return 0;
  });
  auto& gate = *static_cast<std::uint32_t*>(words);
  for (std::uint32_t turn = 1; turn <= 20; ++turn) {
    gpus_->write(from.address, patterns(turn - 1, kBytes));  // too early
    const auto late = patterns(turn, kBytes);
    gpus_->on(0, [&] {
      gpus_->check(cu->cuStreamWaitValue32_v2(work, reinterpret_cast<sys::cuda::Address>(&gate), turn, 0), "wait");
      gpus_->check(cu->cuEventRecord(before, work), "record");
      return 0;
    });
    RequestOptions options;
    options.start_after = before;
    const auto id = engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}}, options);
    ASSERT_TRUE(id) << id.status().to_string();
    const Status held = engine_->stream_wait(*id, after);
    ASSERT_TRUE(held) << held.to_string();
    gpus_->on(0, [&] {
      gpus_->check(cu->cuEventRecord(done, after), "record");
      return 0;
    });
    EXPECT_EQ(engine_->wait(*id, std::chrono::milliseconds(3)).status().code(), ErrorCode::timed_out);
    EXPECT_EQ(cu->cuEventQuery(done), sys::cuda::kErrorNotReady);
    gpus_->write(from.address, late);
    std::atomic_ref(gate).store(turn);
    const auto completion = engine_->wait(*id, kSoon);
    ASSERT_TRUE(completion && completion->status);
    gpus_->on(0, [&] {
      gpus_->check(cu->cuStreamSynchronize(after), "the stream behind the transfer");
      return 0;
    });
    ASSERT_TRUE(read(into, kBytes));
    EXPECT_EQ(content(into, kBytes), late);
  }
  // Of a transfer that has ended, or was never, a stream waits for nothing.
  ASSERT_TRUE(engine_->stream_wait({}, after));
  EXPECT_EQ(engine_->stream_wait({}, nullptr).code(), ErrorCode::invalid_argument);
  gpus_->on(0, [&] {
    gpus_->check(cu->cuStreamSynchronize(after), "the stream");
    gpus_->check(cu->cuStreamDestroy_v2(work), "stream");
    gpus_->check(cu->cuStreamDestroy_v2(after), "stream");
    gpus_->check(cu->cuEventDestroy_v2(before), "event");
    gpus_->check(cu->cuEventDestroy_v2(done), "event");
    gpus_->check(cu->cuMemFreeHost(words), "word");
    return 0;
  });
  // Ordinary memory of both sides goes over shm, which knows no streams; cuda does, and takes it.
  RequestOptions options;
  options.start_after = words;
  options.notify.kind = NotifyKind::none;
  EXPECT_EQ(engine_->send(peer_, 1, {from.id, 0, 8}, options).status().code(), ErrorCode::invalid_argument);
}

TEST_F(CudaLife, MemoryThatCannotBeLentIsRefusedWithTheReason) {
  ASSERT_NO_FATAL_FAILURE(meet("locked"));
  const Region from = on_gpu();
  const Status status = write(from, 4096);
  EXPECT_FALSE(status);
  EXPECT_NE(status.message().find("its owner cannot lend it"), std::string::npos) << status.to_string();
}

TEST_F(CudaLife, AnAddressUsedAgainIsAnotherAllocation) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    std::byte* place = gpus_->allocate(kBytes, 0);
    const auto region = engine_->register_memory(place, kBytes, Access::read | Access::write);
    ASSERT_TRUE(region) << region.status().to_string();
    const auto out = patterns(turn, 4096);
    gpus_->write(place, out);
    ASSERT_TRUE(write(*region, 4096));
    std::vector<std::byte> seen(4096);
    gpus_->write(place, patterns(99, 4096));
    ASSERT_TRUE(read(*region, 4096));
    gpus_->read(seen, place);
    EXPECT_EQ(seen, out);
    ASSERT_TRUE(engine_->deregister(*region, kSoon));
    gpus_->free(place);
  }
}

TEST_F(CudaLife, WhatNobodyCanDoOnAGpuIsRefusedBeforeItBegins) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  const Region from = on_gpu();
  std::byte* place = gpus_->allocate(4096, 0);
  places_.push_back(place);
  EXPECT_EQ(engine_->register_memory(place, 64 << 20, Access::read).status().code(), ErrorCode::out_of_range);
  EXPECT_EQ(engine_->fetch_add(peer_, {remote_.id, 0}, 1).status().code(), ErrorCode::unsupported);
  RequestOptions options;
  options.notify.kind = NotifyKind::signal;
  options.notify.signal = {remote_.id, 64};
  options.notify.signal_add = true;
  const auto added = engine_->write(peer_, Extent{{from.id, 0, 64}, {remote_.id, 0}}, options);
  EXPECT_EQ(added.status().code(), ErrorCode::unsupported);
  options = {};
  options.checksum = true;
  const auto checked = engine_->write(peer_, Extent{{from.id, 0, 64}, {remote_.id, 0}}, options);
  EXPECT_EQ(checked.status().code(), ErrorCode::unsupported);
  Request request;
  request.peer = peer_;
  request.layout = Extent{{from.id, 0, 64}, {remote_.id, 0}};
  ASSERT_TRUE(write(from, 64));
  const auto plan = engine_->explain(request);
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->text().find("CUDA IPC"), std::string::npos) << plan->text();
}

TEST(CudaStrict, IsOffWhereNoMoreThanRegionsMayBeMapped) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  EngineOptions options = options_of("strict");
  options.transports = {"cuda"};
  options.strict_isolation = true;
  const auto engine = Engine::open(options);
  EXPECT_EQ(engine.status().code(), ErrorCode::unsupported);
  EXPECT_NE(engine.status().message().find("strict_isolation"), std::string::npos) << engine.status().to_string();
}

}  // namespace
}  // namespace fairway

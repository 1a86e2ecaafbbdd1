#include <atomic>
#include <cstring>

#include <dlfcn.h>
#include <sys/mman.h>

#include "process/cuda/gpu_pair.h"
#include "support/open_engine.h"
#include "sys/cuda_memory.h"

// What a user does with GPU memory and streams while it is registered, and what is refused.
namespace fairway {
namespace {

using namespace gpu_pair;

using CudaLife = GpuPair;

class CudaStreams : public GpuPair, public testing::WithParamInterface<bool> {};  // true: staged

// A stream of the user's that stands until it is let go, and what stands behind it.
TEST_P(CudaStreams, ATransferWaitsForAStreamAndAStreamForATransfer) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", GetParam() ? std::vector<std::string>{"staged", "tcp"} : kAll));
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

INSTANTIATE_TEST_SUITE_P(Of, CudaStreams, testing::Bool(),
                         [](const auto& row) { return row.param ? "staged" : "by_links"; });

TEST_F(CudaLife, MemoryThatCannotBeLentIsStagedAndExplainSaysWhy) {
  ASSERT_NO_FATAL_FAILURE(meet("locked"));
  const Region from = on_gpu();
  ASSERT_TRUE(write(from, 0));
  const auto id = engine_->write(peer_, Extent{{from.id, 0, 4096}, {remote_.id, 0}});
  ASSERT_TRUE(finish(*engine_, id));
  const auto past = engine_->explain(*id);
  ASSERT_TRUE(past);
  EXPECT_NE(past->text().find("used:     cuda"), std::string::npos) << "to the peer's host memory\n" << past->text();
  EXPECT_NE(past->text().find("staged"), std::string::npos) << past->text();
  Request request;
  request.peer = peer_;
  request.layout = Extent{{from.id, 0, 4096}, {remote_.id, 0}};
  // A slot is given back after a second without work, and its memory pinned anew with the next: until then it goes by
  // shm.
  auto plan = engine_->explain(request);
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (plan && plan->text().find("used:     cuda") == std::string::npos && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(write(from, 4096));
    plan = engine_->explain(request);
  }
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->text().find("used:     cuda"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("staged, it moves between"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("its owner cannot export it"), std::string::npos) << plan->text();
}

// A worker that sleeps, for nobody transfers anything.
TEST_F(CudaLife, ALinkIsKeptAwakeByAWorkerThatSleepsIfThatWasAskedFor) {
  keep_awake_ = true;
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  const Region from = on_gpu();
  // What keeps the link awake reads the first 64 KiB, and a byte in flight there may be old or new.
  const auto move = [&](std::uint64_t bytes) {
    return finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, bytes}, {remote_.id, kBytes / 2}}));
  };
  ASSERT_TRUE(move(8));
  Request request;
  request.peer = peer_;
  request.layout = Extent{{from.id, 0, 8}, {remote_.id, 0}};
  const auto plan = engine_->explain(request);
  ASSERT_TRUE(plan);
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto copies = reinterpret_cast<unsigned long (*)()>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_stream_copies"));
  if (copies == nullptr) GTEST_SKIP() << "the real driver does not count";
  EXPECT_NE(plan->text().find("NVLink, kept awake"), std::string::npos) << plan->text();
  const unsigned long first = copies();
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (copies() < first + 3 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(copies(), first + 3);
  EXPECT_TRUE(move(kBytes / 2));
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

TEST_F(CudaLife, WhatLeavesItsAllocationIsRefusedAndExplainNamesTheWay) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  const Region from = on_gpu();
  std::byte* place = gpus_->allocate(4096, 0);
  places_.push_back(place);
  EXPECT_EQ(engine_->register_memory(place, 64 << 20, Access::read).status().code(), ErrorCode::out_of_range);
  Request request;
  request.peer = peer_;
  request.layout = Extent{{from.id, 0, 64}, {remote_.id, 0}};
  ASSERT_TRUE(write(from, 64));
  const auto plan = engine_->explain(request);
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->text().find("CUDA IPC"), std::string::npos) << plan->text();
  EXPECT_EQ(plan->text().find("the path was not tested"), std::string::npos) << plan->text();
}

// The kernel copies between a stage here and memory of a process that has none any more, while the rest of that is
// still being freed: only then do its sockets end, and tell.
TEST_F(CudaLife, AKilledPeersOrdinaryMemoryIsAnEndOfThePeerAndNotOfTheSystem) {
  constexpr std::uint64_t kMuch = 32u << 20;
  const auto serves = [](ChildProcess::Line& line) {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    std::vector<std::byte> bytes(kMuch);
    constexpr std::size_t kLongToFree = 256u << 20;
    if (::mmap(nullptr, kLongToFree, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) ==
        MAP_FAILED)
      return line.write("no memory");
    auto engine = open_engine(options_of("child"));
    if (!engine) return line.write(engine.status().to_string());
    const auto memory = engine->register_memory(bytes.data(), kMuch, Access::all);
    if (!memory || !engine->publish("memory", *memory)) return line.write("no memory");
    line.write(engine->address());
    (void)line.read();
  };
  ASSERT_NO_FATAL_FAILURE(meet_one_who(serves, kAll));
  const Region from = on_gpu(kMuch), into = on_gpu(kMuch);
  ASSERT_TRUE(write(from, kMuch));
  std::vector<Result<TransferId>> under_way;
  for (int i = 0; i < 8; ++i) {
    under_way.push_back(engine_->write(peer_, Extent{{from.id, 0, kMuch}, {remote_.id, 0}}));
    under_way.push_back(engine_->read(peer_, Extent{{into.id, 0, kMuch}, {remote_.id, 0}}));
  }
  child_->kill();
  for (const auto& each : under_way) {
    const Status status = finish(*engine_, each);
    EXPECT_TRUE(status || status.code() == ErrorCode::peer_dead) << status.to_string();
  }
}

// In a process of its own, that works on GPU 1 alone: what it says is what the driver knows of GPU 0 then.
TEST(CudaPins, HostMemoryIsPinnedByAGpuThatCopiesItAndNoOtherIsTouched) {
  ChildProcess child([](ChildProcess::Line& line) {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    const auto driver = sys::CudaDriver::open();
    if (!driver || (*driver)->devices() < 2) return line.write("less than two GPUs");
    const sys::CudaDriver& cu = **driver;
    unsigned flags = 0;
    int active = 0;
    cu->cuDevicePrimaryCtxGetState(0, &flags, &active);
    if (active != 0) return line.write("an earlier test uses GPU 0: this one runs by itself");
    sys::cuda::Context context = nullptr;
    sys::cuda::Address memory = 0;
    cu->cuDevicePrimaryCtxRetain(&context, 1);
    cu->cuCtxPushCurrent_v2(context);
    cu->cuMemAlloc_v2(&memory, kBytes);
    auto owner = open_engine(options_of("owner", {"cuda", "tcp"})),
         user = open_engine(options_of("user", {"cuda", "tcp"}));
    if (!owner || !user) return line.write("no engines");
    std::vector<std::byte> host(kBytes);
    const auto far = owner->register_memory(reinterpret_cast<std::byte*>(memory), kBytes, Access::all);
    const auto near = user->register_memory(host.data(), kBytes, Access::none);
    const auto peer = user->connect(owner->address(), kSoon);
    if (!far || !near || !peer || !owner->publish("memory", *far)) return line.write("they do not meet");
    const auto remote = user->lookup(*peer, "memory", kSoon);
    Status moved = remote.status();
    for (int i = 0; i < 3 && moved; ++i)
      moved = finish(*user, user->write(*peer, Extent{{near->id, 0, kBytes}, {remote->id, 0}}));
    if (moved) moved = user->deregister(*near);  // behind the pinning
    cu->cuDevicePrimaryCtxGetState(0, &flags, &active);
    line.write(!moved ? moved.to_string() : active != 0 ? "GPU 0 was given a context" : "GPU 1 alone");
  });
  const std::string said = child.read();
  if (said == "less than two GPUs" || said.ends_with("by itself")) GTEST_SKIP() << said;
  EXPECT_EQ(said, "GPU 1 alone");
}

TEST_F(CudaLife, WhatSmallReadsLandInIsPinnedAndWhatSmallWritesComeFromIsNot) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", {"cuda", "tcp"}));
  std::vector<std::byte> read_into(4096), written_from(4096);
  const auto into = engine_->register_memory(read_into.data(), read_into.size(), Access::none);
  const auto from = engine_->register_memory(written_from.data(), written_from.size(), Access::none);
  ASSERT_TRUE(into && from);
  const auto driver = sys::CudaDriver::open();
  ASSERT_TRUE(driver);
  const auto pinned = [&](const std::vector<std::byte>& memory) {
    return sys::look_at(**driver, memory.data()).kind == MemoryKind::pinned;
  };
  const auto give_up = std::chrono::steady_clock::now() + kSoon;
  while (!pinned(read_into) && std::chrono::steady_clock::now() < give_up) {
    ASSERT_TRUE(write(*from, 8));
    ASSERT_TRUE(read(*into, 8));
  }
  EXPECT_TRUE(pinned(read_into));
  EXPECT_FALSE(pinned(written_from));
  ASSERT_TRUE(engine_->deregister(*into));
  EXPECT_FALSE(pinned(read_into));
}

TEST(CudaStrict, IsOffWhereNoMoreThanRegionsMayBeMapped) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  EngineOptions options = options_of("strict");
  options.transports = {"cuda"};
  options.strict_isolation = true;
  const auto engine = open_engine(options);
  EXPECT_EQ(engine.status().code(), ErrorCode::unsupported);
  EXPECT_NE(engine.status().message().find("strict_isolation"), std::string::npos) << engine.status().to_string();
}

TEST(CudaStrict, StagesGpuMemoryWhenNoTransportIsNamed) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  DeviceMemory gpus;
  EngineOptions options = options_of("strict", {});
  options.strict_isolation = true;
  auto engine = open_engine(options);
  ASSERT_TRUE(engine) << engine.status().to_string();
  std::byte* place = gpus.allocate(4096, 0);
  const auto region = engine->register_memory(place, 4096, Access::all);
  ASSERT_TRUE(region) << region.status().to_string();
  EXPECT_EQ(region->kind, MemoryKind::device);
  engine->close();
  gpus.free(place);
}

}  // namespace
}  // namespace fairway

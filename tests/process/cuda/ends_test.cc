#include <atomic>
#include <cstring>

#include <dlfcn.h>

#include "process/cuda/mapping_pair.h"
#include "support/open_engine.h"

// Ends that hold while kernels of the program's run, and while it captures graphs.
namespace fairway {
namespace {

using namespace gpu_pair;

class CudaEnds : public CudaMapping {
 protected:
  // A function of the stand-in driver; null: it is the real one.
  template <class Function>
  static Function standin(const char* name) {
    void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(driver, name));
  }
  using Hold = void (*)(bool);

  // An event of a stream that stands until the gate is opened.
  sys::cuda::Event held_event() {
    const auto& cu = gpus_->driver();
    const sys::cuda::Stream work = make_stream(0);
    sys::cuda::Event event = nullptr;
    gpus_->on(0, [&] {
      if (gate_ == nullptr) gpus_->check(cu->cuMemHostAlloc(&gate_, 64, sys::cuda::kHostPortable), "word");
      gpus_->check(cu->cuEventCreate(&event, sys::cuda::kEventDisableTiming), "event");
      gpus_->check(cu->cuStreamWaitValue32_v2(work, reinterpret_cast<sys::cuda::Address>(gate_), 1, 0), "wait");
      gpus_->check(cu->cuEventRecord(event, work), "record");
      return 0;
    });
    return event;
  }
  void open_gate() { std::atomic_ref(*static_cast<std::uint32_t*>(gate_)).store(1); }
  PeerEvent down() {
    const auto until = std::chrono::steady_clock::now() + kSoon;
    std::array<PeerEvent, 1> events;
    while (std::chrono::steady_clock::now() < until) {
      (void)engine_->wait_peer_event(std::chrono::milliseconds(50));
      while (engine_->poll_peer_events(events) == 1)
        if (events[0].kind == PeerEvent::Kind::down) return events[0];
    }
    return {};
  }
  static Timeout until_closed(Engine& engine) {
    const auto begin = std::chrono::steady_clock::now();
    engine.close();
    return std::chrono::duration_cast<Timeout>(std::chrono::steady_clock::now() - begin);
  }

  void* gate_ = nullptr;
};

TEST_F(CudaEnds, AnEngineMayEndWithMappingsOfItsOwnMemory) {
  ASSERT_NO_FATAL_FAILURE(meet());
  if (gpus_->devices() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const bool closes : {true, false}) {
    auto engine = open_engine(options_of("short"));
    ASSERT_TRUE(engine) << engine.status().to_string();
    std::byte* const place = gpus_->allocate(kBytes, 0);
    const auto region = engine->register_memory(place, kBytes, Access::all);
    ASSERT_TRUE(region);
    const auto mapping = engine->map(*region, 1);
    ASSERT_TRUE(mapping) << mapping.status().to_string();
    if (closes) engine->close();
    engine = Status(ErrorCode::closed, "destroyed, with its region");
    gpus_->free(place);
  }
}

// One that waits for this engine among others.
TEST_F(CudaEnds, APeerThatDiesBeforeAnEventHoldsUpNobodyElse) {
  ChildProcess other([](ChildProcess::Line& line) { obey(line, "malloc", kAll); });
  const std::string address = other.read();
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region from = registered(kBytes, 0);
  const auto second = engine_->connect(address, kSoon);
  ASSERT_TRUE(second) << second.status().to_string();
  const auto theirs = engine_->lookup(*second, "memory", kSoon);
  ASSERT_TRUE(theirs);
  const auto write_to_other = [&] {
    return finish(*engine_, engine_->write(*second, Extent{{from.id, 0, kBytes}, {theirs->id, 0}}));
  };
  ASSERT_TRUE(write(from, kBytes));
  ASSERT_TRUE(write_to_other());
  const sys::cuda::Event event = held_event();
  RequestOptions options;
  options.start_after = event;
  const auto waits = engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}}, options);
  ASSERT_TRUE(waits) << waits.status().to_string();
  EXPECT_EQ(engine_->wait(*waits, std::chrono::milliseconds(20)).status().code(), ErrorCode::timed_out);
  child_->kill();
  EXPECT_EQ(down().peer, peer_);
  for (int i = 0; i < 3; ++i) {
    const Status served = write_to_other();
    EXPECT_TRUE(served) << served.to_string();
  }
  EXPECT_EQ(engine_->wait(*waits, std::chrono::milliseconds(20)).status().code(), ErrorCode::timed_out)
      << "a device still reads its memory";
  EXPECT_EQ(engine_->deregister(from, std::chrono::milliseconds(20)).code(), ErrorCode::not_fenced);
  open_gate();
  const auto ended = engine_->wait(*waits, kSoon);
  ASSERT_TRUE(ended) << ended.status().to_string();
  EXPECT_EQ(ended->status.code(), ErrorCode::peer_dead) << ended->status.to_string();
  gpus_->driver()->cuEventDestroy_v2(event);
}

TEST_F(CudaEnds, AClosedOwnerIsNotFencedWhileAPeersCopyIsAhead) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region from = registered(kBytes, 0);
  gpus_->write(places_.back(), patterns(1, kBytes), 0);
  const sys::cuda::Event event = held_event();
  RequestOptions options;
  options.start_after = event;
  const auto waits = engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}}, options);
  ASSERT_TRUE(waits) << waits.status().to_string();
  EXPECT_EQ(engine_->wait(*waits, std::chrono::milliseconds(50)).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(ask("close"), "closed");
  EXPECT_EQ(ask("state"), "pending");
  EXPECT_NE(ask("deregister 0").find("not_fenced"), std::string::npos) << "a device has yet to write there";
  EXPECT_EQ(ask("back " + std::to_string(kBytes)), "something else");
  open_gate();
  EXPECT_NE(ask("deregister 20000").find("nothing touches its regions"), std::string::npos);
  EXPECT_EQ(ask("state"), "fenced");
  gpus_->driver()->cuEventDestroy_v2(event);
}

TEST_F(CudaEnds, WhileAKernelHoldsUpWhatIsClosedANewPathOpens) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto hold = standin<Hold>("fairway_standin_hold_closings");
  if (hold == nullptr) GTEST_SKIP() << "tests/gpu has a kernel that runs";
  ChildProcess* const owner = child_.get();
  const Region from = registered(kBytes, 0);
  std::vector<std::byte> plain(kBytes);
  const auto host = engine_->register_memory(plain.data(), kBytes, Access::none);
  ASSERT_TRUE(host);
  ASSERT_TRUE(write(*host, kBytes));  // it is pinned
  ASSERT_TRUE(write(from, kBytes));
  hold(true);
  const Status kept = engine_->deregister(*host, std::chrono::milliseconds(50));  // it is unpinned behind the kernel
  owner->write("deregister 20000");
  EXPECT_EQ(owner->read(), "ok") << "nothing of it is used here";
  std::byte* const place = gpus_->allocate(kBytes, 1);
  auto another = open_engine(options_of("another"));
  EXPECT_TRUE(another);
  Status moved = another.status();
  if (another) {
    const auto fresh = another->register_memory(place, kBytes, Access::all);
    EXPECT_TRUE(fresh && another->publish("fresh", *fresh));
    const auto peer = engine_->connect(another->address(), kSoon);
    const auto remote = peer ? engine_->lookup(*peer, "fresh", kSoon) : Result<RemoteRegion>(peer.status());
    moved = remote.status();
    if (remote) moved = finish(*engine_, engine_->write(*peer, Extent{{from.id, 0, kBytes}, {remote->id, 0}}));
  }
  hold(false);
  EXPECT_TRUE(moved) << moved.to_string();
  EXPECT_EQ(kept.code(), ErrorCode::not_fenced) << "the driver still has it: " << kept.to_string();
  if (another) another->close();
  gpus_->free(place);
}

TEST_F(CudaEnds, WhatAKernelHoldsUpKeepsNoEngineFromClosing) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto hold = standin<Hold>("fairway_standin_hold_closings");
  if (hold == nullptr) GTEST_SKIP() << "tests/gpu has a kernel that runs";
  const Region from = registered(kBytes, 0);
  ASSERT_TRUE(write(from, kBytes));
  std::atomic<bool> closed{false};
  hold(true);
  std::thread closes([&] {
    engine_->close();
    engine_.reset();
    closed = true;
  });
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (!closed && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(closed);
  hold(false);
  closes.join();
}

// Some captures have every thread's unsafe calls end them: CUDA's default, and PyTorch's.
TEST_F(CudaEnds, WhatAnEngineOpensEndsNoCaptureOfTheProgram) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto& cu = gpus_->driver();
  const sys::cuda::Stream stream = make_stream(0);
  std::byte* const place = gpus_->allocate(kBytes, 0);
  places_.push_back(place);
  std::vector<std::byte> plain(kBytes);
  constexpr int kGlobal = 0;
  gpus_->on(0, [&] { return cu->cuStreamBeginCapture_v2(stream, kGlobal); });
  const auto device = engine_->register_memory(place, kBytes, Access::all);
  const auto host = engine_->register_memory(plain.data(), kBytes, Access::none);
  EXPECT_TRUE(device && host);
  if (device && host) {
    for (const Region& region : {*device, *host}) {
      const Status wrote = write(region, kBytes), back = read(region, kBytes);
      EXPECT_TRUE(wrote && back) << wrote.to_string() << ", " << back.to_string();
      const Status ended = engine_->deregister(region, kSoon);
      EXPECT_TRUE(ended) << ended.to_string();
    }
  }
  sys::cuda::Graph graph = nullptr;
  EXPECT_EQ(cu->cuStreamEndCapture(stream, &graph), sys::cuda::kSuccess);
  EXPECT_NE(graph, nullptr);
  if (graph != nullptr) cu->cuGraphDestroy(graph);
}

TEST_F(CudaEnds, AStreamThatCapturesWaitsForNoTransferAndNoTransferForItsEvent) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto& cu = gpus_->driver();
  const Region from = registered(kBytes, 0);
  ASSERT_TRUE(write(from, kBytes));
  const sys::cuda::Stream stream = make_stream(0);
  const sys::cuda::Event held = held_event();  // what it allocates, a capture of this thread refuses
  sys::cuda::Event event = nullptr;
  gpus_->on(0, [&] {
    gpus_->check(cu->cuEventCreate(&event, sys::cuda::kEventDisableTiming), "event");
    gpus_->check(cu->cuStreamBeginCapture_v2(stream, sys::cuda::kCaptureOfThread), "capture");
    gpus_->check(cu->cuEventRecord(event, stream), "record");
    return 0;
  });
  RequestOptions waits;
  waits.start_after = held;
  const auto first = engine_->write(peer_, Extent{{from.id, 0, 64}, {remote_.id, 0}}, waits);
  ASSERT_TRUE(first);
  const Status behind = engine_->stream_wait(*first, stream);
  EXPECT_EQ(behind.code(), ErrorCode::invalid_argument) << behind.to_string();
  EXPECT_NE(behind.message().find("stream_wait_signal"), std::string::npos) << behind.to_string();
  RequestOptions options;
  options.start_after = event;
  const Status refused = finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, 64}, {remote_.id, 0}}, options));
  EXPECT_EQ(refused.code(), ErrorCode::invalid_argument) << refused.to_string();
  EXPECT_NE(refused.message().find("start_after"), std::string::npos) << refused.to_string();
  sys::cuda::Graph graph = nullptr;
  cu->cuStreamEndCapture(stream, &graph);
  open_gate();
  const auto ended = engine_->wait(*first, kSoon);
  EXPECT_TRUE(ended && ended->status);
  EXPECT_TRUE(write(from, kBytes));
  if (graph != nullptr) cu->cuGraphDestroy(graph);
  cu->cuEventDestroy_v2(event);
  cu->cuEventDestroy_v2(held);
}

}  // namespace
}  // namespace fairway

#include <cstring>
#include <thread>

#include <dlfcn.h>
#include <sys/resource.h>

#include "conformance/local_links.h"
#include "process/cuda/gpu_pair.h"
#include "support/open_engine.h"

// Device memory that goes through host memory of the engines': what the other tests of GPU memory do not ask.
namespace fairway {
namespace {

using namespace gpu_pair;

const std::vector<std::string> kByShm{"staged", "shm"}, kByTcp{"staged", "tcp"};

using Staged = GpuPair;

TEST_F(Staged, AListOfOddExtentsArrivesWhereverItsPiecesLie) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByTcp));
  const Region first = on_gpu(), second = on_gpu(), into = on_gpu();
  const auto one = patterns(1, kBytes), two = patterns(2, kBytes);
  gpus_->write(first.address, one);
  gpus_->write(second.address, two);
  std::vector<std::byte> host = patterns(3, kBytes);
  const auto ordinary = engine_->register_memory(host.data(), kBytes, Access::none);
  ASSERT_TRUE(ordinary);
  struct Source {
    const Region* region;
    const std::vector<std::byte>* bytes;
  };
  const Source sources[] = {{&first, &one}, {&second, &two}, {&*ordinary, &host}};
  std::vector<Extent> extents;
  std::vector<std::byte> expected(kBytes, std::byte{0});
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; at < kBytes - 1'600'000; ++i) {
    const std::uint64_t length = i == 300 ? 1'500'001 : i % 7 == 0 ? 0 : i * 3 % 4001;
    const Source& from = sources[i / 3 % 3];
    const std::uint64_t where = i * 1009 % (kBytes - length);
    extents.push_back({{from.region->id, where, length}, {remote_.id, at}});
    std::copy_n(from.bytes->begin() + static_cast<std::ptrdiff_t>(where), length,
                expected.begin() + static_cast<std::ptrdiff_t>(at));
    at += length;
  }
  ASSERT_GT(extents.size(), 600u);
  const Status written = finish(*engine_, engine_->write(peer_, std::span<const Extent>(extents)));
  ASSERT_TRUE(written) << written.to_string();
  ASSERT_TRUE(read(into, at));
  EXPECT_EQ(content(into, at), std::vector(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(at)));
  extents[extents.size() / 2].remote.offset = kBytes;
  extents[extents.size() / 2].local.length = 1;
  const Status outside = finish(*engine_, engine_->write(peer_, std::span<const Extent>(extents)));
  EXPECT_EQ(outside.code(), ErrorCode::out_of_range);
}

TEST_F(Staged, PagesGoToASlotAndFromItByOneLaunch) {
#ifndef FAIRWAY_HAS_KERNELS
  GTEST_SKIP() << "this build has no kernels: nvcc was not found";
#endif
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByTcp));
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto calls = reinterpret_cast<unsigned long (*)()>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_stream_copies"));
  if (calls == nullptr) GTEST_SKIP() << "the real driver does not count";
  constexpr std::uint64_t kPage = 1000, kPages = 1024;  // not of a vector's alignment
  const Region from = on_gpu(), into = on_gpu();
  const auto out = patterns(5, kBytes);
  gpus_->write(from.address, out);
  std::vector<std::uint64_t> here(kPages), there(kPages);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    here[i] = i * 613 % kPages;
    there[i] = i * 389 % kPages;
  }
  const Paged outwards{from.id, remote_.id, kPage, 4096, 2048, here, there};
  const Paged back{into.id, remote_.id, kPage, 4096, 2048, here, there};
  ASSERT_TRUE(finish(*engine_, engine_->write(peer_, outwards)));  // all is made and pinned
  const unsigned long before = calls();
  ASSERT_TRUE(finish(*engine_, engine_->write(peer_, outwards)));
  ASSERT_TRUE(finish(*engine_, engine_->read(peer_, back)));
  EXPECT_LT(calls() - before, 16u) << "1024 pages out and in";
  const auto seen = content(into, kBytes);
  for (std::uint64_t i = 0; i < kPages; ++i)
    ASSERT_EQ(std::memcmp(seen.data() + i * 4096, out.data() + i * 4096, kPage), 0) << i;
}

// A bridge between the GPUs loses what one writes to the other: no error of the driver's says so.
TEST_F(Staged, AWireThatLosesBytesIsFoundBeforeItIsUsed) {
  const char* const named = std::getenv("FAIRWAY_CUDA_DRIVER");
  void* const driver = ::dlopen(named == nullptr ? FAIRWAY_STANDIN_CUDA : named, RTLD_NOW);
  const auto lose = reinterpret_cast<void (*)(bool)>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_lose_peer_writes"));
  if (lose == nullptr) GTEST_SKIP() << "the real driver's wires lose nothing";
  lose(true);
  ASSERT_NO_FATAL_FAILURE(meet("malloc"));
  const Region from = on_gpu(), into = on_gpu();
  gpus_->write(from.address, patterns(3, kBytes));
  const Status written = write(from, kBytes);
  ASSERT_TRUE(written) << written.to_string();
  ASSERT_TRUE(read(into, kBytes));
  EXPECT_EQ(content(into, kBytes), patterns(3, kBytes));
  Request request;
  request.peer = peer_;
  request.layout = Extent{{from.id, 0, kBytes}, {remote_.id, 0}};
  const auto plan = engine_->explain(request);
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->text().find("reads other bytes from GPU 1"), std::string::npos) << plan->text();
  const auto mapping = engine_->map(remote_, 0, kSoon);
  EXPECT_EQ(mapping.status().code(), ErrorCode::unsupported);
  EXPECT_NE(mapping.status().message().find("reads other bytes"), std::string::npos) << mapping.status().to_string();
  lose(false);
}

TEST_F(Staged, CutLinksLoseAndRepeatNothing) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByShm));
  const Region from = on_gpu(), into = on_gpu();
  const auto cut_meanwhile = [&](const Result<TransferId>& id) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    conformance::cut_local_links();  // of the next one, when this one is over
    return finish(*engine_, id);
  };
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    const auto out = patterns(turn, kBytes);
    gpus_->write(from.address, out);
    const Status written = cut_meanwhile(engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}}));
    ASSERT_TRUE(written) << written.to_string();
    const Status got = cut_meanwhile(engine_->read(peer_, Extent{{into.id, 0, kBytes}, {remote_.id, 0}}));
    ASSERT_TRUE(got) << got.to_string();
    EXPECT_TRUE(content(into, kBytes) == out) << turn;
  }
}

// The device here copies to the peer's host memory by a link of its own, which is cut and stays away; what was on its
// way goes through host memory here then, over the link that is left.
TEST_F(Staged, AStepWhoseLinkStaysAwayGoesByASlotHere) {
  ASSERT_NO_FATAL_FAILURE(meet("locked", {"cuda", "tcp"}));
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto hold_copies =
      reinterpret_cast<void (*)(bool)>(driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_hold_copies"));
  if (hold_copies == nullptr) GTEST_SKIP() << "the real driver cannot be told to wait";
  const Region from = on_gpu(), into = on_gpu();
  const auto out = patterns(1, kBytes);
  gpus_->write(from.address, out);
  ASSERT_TRUE(write(from, 8));  // through host memory here, and
  ASSERT_TRUE(write(from, 0));  // once all is open, past it
  const auto plain = engine_->lookup(peer_, "plain", kSoon);
  ASSERT_TRUE(plain);
  const auto write_plain = [&] { return engine_->write(peer_, Extent{{from.id, 0, 8}, {plain->id, 0}}); };
  ASSERT_TRUE(finish(*engine_, write_plain()));
  hold_copies(true);
  std::vector<Result<TransferId>> ahead;  // as many as the link has for the device at once
  for (int i = 0; i < 300; ++i) ahead.push_back(write_plain());
  const auto written = engine_->write(peer_, Extent{{from.id, 0, kBytes}, {remote_.id, 0}});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  conformance::cut_local_links();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);  // so that no new one can be made
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  hold_copies(false);
  EXPECT_TRUE(finish(*engine_, written));
  for (const auto& each : ahead) EXPECT_TRUE(finish(*engine_, each));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto past = engine_->explain(*written);
  ASSERT_TRUE(past);
  EXPECT_NE(past->text().find("used:     tcp"), std::string::npos) << past->text();
  ASSERT_TRUE(read(into, kBytes));
  EXPECT_TRUE(content(into, kBytes) == out);
}

TEST_F(Staged, AfterACancelOrADeregistrationNothingIsTouched) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByTcp));
  const Region from = on_gpu();
  gpus_->write(from.address, patterns(7, kBytes));
  ASSERT_TRUE(write(from, kBytes));
  for (int turn = 0; turn < 20; ++turn) {
    const Region into = on_gpu();
    gpus_->write(into.address, std::vector<std::byte>(kBytes, std::byte{0xee}));
    std::vector<TransferId> ids;
    for (int i = 0; i < 4; ++i) {
      const auto id = engine_->read(peer_, Extent{{into.id, 0, kBytes}, {remote_.id, 0}});
      ASSERT_TRUE(id);
      ids.push_back(*id);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(turn * 300));
    if (turn % 2 == 0) {
      for (const TransferId id : ids) {
        const auto cancelled = engine_->cancel(id, kSoon);
        ASSERT_TRUE(cancelled && cancelled->fenced);
      }
    } else {
      const Status fenced = engine_->deregister(into, kSoon);
      ASSERT_TRUE(fenced) << fenced.to_string();
    }
    const auto before = content(into, kBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(content(into, kBytes), before);
    for (const TransferId id : ids) ASSERT_TRUE(engine_->wait(id, kSoon));
  }
  ASSERT_TRUE(write(from, kBytes));  // all slots are free again
}

// More peers than the child has rooms: who waits gets one from a peer that had its turn.
TEST_F(Staged, MorePeersThanRoomsAllComeToAnEnd) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByTcp));
  constexpr std::uint64_t kEach = 200'000, kEngines = 20;
  struct One {
    std::unique_ptr<Engine> engine;
    PeerId peer;
    Region region;
    RemoteRegion remote;
  };
  std::vector<One> all;
  for (std::uint64_t i = 0; i < kEngines; ++i) {
    One one;
    auto engine = open_engine(options_of("parent" + std::to_string(i), kByTcp));
    ASSERT_TRUE(engine);
    one.engine = std::make_unique<Engine>(std::move(*engine));
    const auto peer = one.engine->connect(child_address_, kSoon);
    ASSERT_TRUE(peer);
    one.peer = *peer;
    one.remote = one.engine->lookup(*peer, "memory", kSoon).value();
    places_.push_back(gpus_->allocate(2 * kEach, 0));
    gpus_->write(places_.back(), patterns(i, kEach));
    one.region = one.engine->register_memory(places_.back(), 2 * kEach, Access::none).value();
    all.push_back(std::move(one));
  }
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<TransferId> ids;
    for (std::uint64_t i = 0; i < kEngines; ++i)
      ids.push_back(all[i]
                        .engine->write(all[i].peer, Extent{{all[i].region.id, 0, kEach}, {all[i].remote.id, i * kEach}})
                        .value());
    for (std::uint64_t i = 0; i < kEngines; ++i) {
      const auto done = all[i].engine->wait(ids[i], kSoon);
      ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
    }
  }
  const Region into = on_gpu();
  ASSERT_TRUE(read(into, kEngines * kEach));
  const auto seen = content(into, kEngines * kEach);
  for (std::uint64_t i = 0; i < kEngines; ++i) {
    const auto mine = patterns(i, kEach);
    EXPECT_TRUE(std::equal(mine.begin(), mine.end(), seen.begin() + static_cast<std::ptrdiff_t>(i * kEach))) << i;
  }
}

// A host without a GPU reaches the GPU memory of one that has.
TEST_F(Staged, AnEngineWithoutADeviceReachesADevicesMemory) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", kByTcp));
  auto plain = open_engine(options_of("plain", {"tcp"}));
  ASSERT_TRUE(plain);
  const auto peer = plain->connect(child_address_, kSoon);
  ASSERT_TRUE(peer);
  const auto remote = plain->lookup(*peer, "memory", kSoon);
  ASSERT_TRUE(remote);
  const auto out = patterns(11, kBytes);
  std::vector<std::byte> from = out, into(kBytes);
  const auto source = plain->register_memory(from.data(), kBytes, Access::none);
  const auto target = plain->register_memory(into.data(), kBytes, Access::none);
  ASSERT_TRUE(source && target);
  const Status written = finish(*plain, plain->write(*peer, Extent{{source->id, 0, kBytes}, {remote->id, 0}}));
  ASSERT_TRUE(written) << written.to_string();
  const Status got = finish(*plain, plain->read(*peer, Extent{{target->id, 0, kBytes}, {remote->id, 0}}));
  ASSERT_TRUE(got) << got.to_string();
  EXPECT_EQ(into, out);
  // Nor can it be fooled into memory of no permission, or beyond the end.
  EXPECT_EQ(plain->write(*peer, Extent{{source->id, 0, 2}, {remote->id, kBytes - 1}}).status().code(),
            ErrorCode::out_of_range);
}

}  // namespace
}  // namespace fairway

#include <ostream>

#include "process/cuda/mapping_pair.h"
#include "support/open_engine.h"

// Regions that kernels reach by themselves: who holds what, how long, and how it ends.
namespace fairway {
namespace {

using namespace gpu_pair;

class CudaMappingOf : public CudaMapping, public testing::WithParamInterface<const char*> {};

TEST_P(CudaMappingOf, ItsOwnerGetsItBackOnceTheHolderLetsGo) {
  ASSERT_NO_FATAL_FAILURE(meet(GetParam()));
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  EXPECT_EQ(mapping->size_bytes, kBytes);
  EXPECT_EQ(mapping->gpu, 0);
  EXPECT_EQ(mapping->access, Access::all);
  EXPECT_TRUE(mapping->atomics);
  EXPECT_FALSE(mapping->path_description.empty());
  EXPECT_EQ(said(*mapping), ErrorCode::ok);
  gpus_->write(mapping->address, patterns(1, kBytes));  // what a kernel would do
  EXPECT_EQ(ask("back " + std::to_string(kBytes)), "as sent");

  const std::string kept = ask("deregister 300");
  EXPECT_NE(kept.find("not_fenced"), std::string::npos) << kept;
  EXPECT_NE(kept.find("parent ("), std::string::npos) << kept;
  EXPECT_NE(kept.find("kernels have it mapped"), std::string::npos) << kept;
  const PeerEvent told = ending();
  EXPECT_EQ(told.mapping, mapping->id);
  EXPECT_EQ(told.peer, peer_);
  EXPECT_EQ(told.reason.code(), ErrorCode::revoked);
  EXPECT_EQ(said(*mapping), ErrorCode::revoked);
  EXPECT_EQ(engine_->map(remote_, 0).status().code(), ErrorCode::revoked) << "nobody gets a new one";
  gpus_->write(mapping->address, patterns(2, 64));  // kernels that run may come to their end
  ASSERT_TRUE(engine_->unmap(mapping->id));
  EXPECT_EQ(engine_->unmap(mapping->id).code(), ErrorCode::not_found);
}
INSTANTIATE_TEST_SUITE_P(Of, CudaMappingOf, testing::Values("malloc", "mapped", "expanded"),
                         [](const auto& row) { return std::string(row.param); });

TEST_F(CudaMapping, DeregisterWaitsForTheHolderAndGoesOnWhenItLetsGo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  child_->write("deregister 20000");
  EXPECT_EQ(ending().reason.code(), ErrorCode::revoked);
  ASSERT_TRUE(engine_->unmap(mapping->id));
  EXPECT_EQ(child_->read(), "ok");
}

TEST_F(CudaMapping, EachOfTwoOfOneRegionIsHeldByItself) {
  ASSERT_NO_FATAL_FAILURE(meet());
  if (gpus_->devices() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto first = engine_->map(remote_, 0), second = engine_->map(remote_, 0), elsewhere = engine_->map(remote_, 1);
  ASSERT_TRUE(first && second && elsewhere);
  EXPECT_NE(first->id, second->id);
  EXPECT_EQ(first->address, second->address);
  ASSERT_TRUE(engine_->unmap(first->id));
  ASSERT_TRUE(engine_->unmap(elsewhere->id));
  EXPECT_NE(ask("deregister 100").find("not_fenced"), std::string::npos);
  EXPECT_EQ(said(*second), ErrorCode::revoked);
  ASSERT_TRUE(engine_->unmap(second->id));
}

TEST_F(CudaMapping, AKilledHolderHoldsNothingUp) {
  ChildProcess holder([](auto& line) {  // of this process's memory
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    auto engine = open_engine(options_of("third"));
    const auto peer = engine->connect(line.read(), kSoon);
    const auto remote = engine->lookup(*peer, "mine", kSoon);
    const auto mapping = engine->map(*remote, 0);
    line.write(mapping ? "mapped" : mapping.status().to_string());
    (void)line.read();
  });
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region mine = registered(kBytes, 0);
  ASSERT_TRUE(engine_->publish("mine", mine));
  holder.write(engine_->address());
  ASSERT_EQ(holder.read(), "mapped");
  const std::uint64_t regions = engine_->metrics().regions;
  const Status kept = engine_->deregister(mine, std::chrono::milliseconds(100));
  EXPECT_EQ(kept.code(), ErrorCode::not_fenced) << kept.to_string();
  EXPECT_NE(kept.message().find("third"), std::string::npos) << kept.to_string();
  holder.kill();
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (engine_->metrics().regions == regions && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine_->metrics().regions, regions - 1) << "what was begun ends once nobody holds it";
}

TEST_F(CudaMapping, AKilledOwnerEndsItTyped) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  child_->kill();
  const PeerEvent told = ending();
  EXPECT_EQ(told.mapping, mapping->id);
  EXPECT_EQ(told.reason.code(), ErrorCode::peer_dead) << told.reason.to_string();
  EXPECT_EQ(said(*mapping), ErrorCode::peer_dead);
  EXPECT_TRUE(engine_->unmap(mapping->id)) << "a peer that is gone keeps nobody from that";
  EXPECT_FALSE(engine_->map(remote_, 0));
}

TEST_F(CudaMapping, AnOwnerThatClosesEndsItAndWaitsForTheHolder) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  child_->write("close");
  const PeerEvent told = ending();
  EXPECT_EQ(told.mapping, mapping->id);
  EXPECT_FALSE(told.reason);
  EXPECT_NE(said(*mapping), ErrorCode::ok);
  ASSERT_TRUE(engine_->unmap(mapping->id));
  EXPECT_EQ(child_->read(), "closed");
}

TEST_F(CudaMapping, AHolderThatDisconnectsStillHoldsUntilItLetsGo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  ASSERT_TRUE(engine_->disconnect(peer_));
  EXPECT_EQ(ending().mapping, mapping->id);
  EXPECT_NE(ask("deregister 200").find("not_fenced"), std::string::npos);
  ASSERT_TRUE(engine_->unmap(mapping->id));
}

TEST_F(CudaMapping, OwnMemoryOfAnotherGpuIsHeldLikeAPeers) {
  ASSERT_NO_FATAL_FAILURE(meet());
  if (gpus_->devices() < 2) GTEST_SKIP() << "needs two GPUs";
  const Region own = registered(kBytes, 0);
  const auto mapping = engine_->map(own, 1);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  EXPECT_EQ(mapping->address, own.address);
  const Status kept = engine_->deregister(own, std::chrono::milliseconds(100));
  EXPECT_EQ(kept.code(), ErrorCode::not_fenced);
  EXPECT_NE(kept.message().find("unmap"), std::string::npos) << kept.to_string();
  EXPECT_EQ(ending().reason.code(), ErrorCode::revoked);
  ASSERT_TRUE(engine_->unmap(mapping->id));
  EXPECT_EQ(engine_->map(own, 1).status().code(), ErrorCode::revoked);
}

TEST_F(CudaMapping, WhatHasNoDirectWayIsRefusedWithTheReason) {
  ASSERT_NO_FATAL_FAILURE(meet());
  for (const int gpu : {-1, gpus_->devices(), 1000}) {
    const auto none = engine_->map(remote_, gpu);
    EXPECT_EQ(none.status().code(), ErrorCode::invalid_argument) << none.status().to_string();
    EXPECT_NE(none.status().message().find("GPU"), std::string::npos);
  }
  const auto host = engine_->lookup(peer_, "host", kSoon);
  ASSERT_TRUE(host);
  EXPECT_EQ(engine_->map(*host, 0).status().code(), ErrorCode::unsupported);
  const auto own_host = engine_->allocate(4096, Access::all);
  ASSERT_TRUE(own_host);
  EXPECT_EQ(engine_->map(*own_host, 0).status().code(), ErrorCode::unsupported);
  EXPECT_EQ(engine_->unmap({77}).code(), ErrorCode::not_found);
  RemoteRegion released = remote_;
  ASSERT_TRUE(engine_->release(remote_));
  EXPECT_EQ(engine_->map(released, 0).status().code(), ErrorCode::not_found);
}

TEST_F(CudaMapping, MemoryThatItsOwnerCannotLendIsRefusedWithTheReason) {
  ASSERT_NO_FATAL_FAILURE(meet("locked"));
  const auto none = engine_->map(remote_, 0);
  EXPECT_EQ(none.status().code(), ErrorCode::unsupported);
  EXPECT_NE(none.status().message().find("cannot export it"), std::string::npos) << none.status().to_string();
}

TEST_F(CudaMapping, WithoutTheTransportThereIsNone) {
  ASSERT_NO_FATAL_FAILURE(meet("malloc", {"staged", "tcp"}));
  const auto none = engine_->map(remote_, 0);
  EXPECT_EQ(none.status().code(), ErrorCode::unsupported);
  EXPECT_NE(none.status().message().find("cuda"), std::string::npos) << none.status().to_string();
  StreamWait wait;
  std::uint64_t word = 0;
  std::uint32_t outcome = 0;
  wait.word = &word;
  wait.outcome = &outcome;
  EXPECT_EQ(engine_->stream_wait_signal(wait, &word).code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace fairway

// A Communicator that was moved from is an error, not a crash, as an Engine is.
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "fairway/collectives.h"
#include "fairway/engine.h"
#include "fairway/loopback.h"

namespace fairway {
namespace {

void is_told(const Status& status) {
  EXPECT_EQ(status.code(), ErrorCode::closed) << status.to_string();
  EXPECT_NE(status.message().find("was moved from"), std::string::npos) << status.to_string();
}

TEST(MovedFrom, EveryCallOfACommunicatorSaysThatItIsClosedAndTheOtherGoesOn) {
  EngineOptions options;
  options.loopback = make_loopback();
  options.transports = {"loopback"};
  Engine engine = *Engine::open(options);
  const std::array<std::string, 1> addresses{engine.address()};
  Communicator gone = *Communicator::create(engine, 0, addresses);
  Communicator group = std::move(gone);

  Collective barrier;
  barrier.kind = CollectiveKind::barrier;
  const std::array<Collective, 1> several{barrier};
  std::array<std::byte, 64> memory{};
  std::size_t received = 0;
  is_told(gone.run(barrier));
  is_told(gone.run_all(several));
  is_told(gone.run_all({}));
  is_told(gone.start(barrier).status());
  EXPECT_TRUE(gone.test(OperationId{1}));
  is_told(gone.wait(OperationId{1}));
  is_told(gone.measure().status());
  is_told(gone.use_gpu(0));
  is_told(gone.measure_gpu().status());
  is_told(gone.register_window(memory.data(), memory.size()).status());
  is_told(gone.deregister_window(WindowId{1}));
  is_told(gone.stream_run(barrier, nullptr));
  is_told(gone.stream_messages({}, nullptr));
  is_told(gone.stream_status());
  is_told(gone.send(memory.data(), memory.size(), 0));
  is_told(gone.receive(memory.data(), memory.size(), 0, 0, &received));
  is_told(gone.start_send(memory.data(), memory.size(), 0).status());
  is_told(gone.start_receive(memory.data(), memory.size(), 0).status());
  EXPECT_TRUE(gone.test(MessageId{1}));
  is_told(gone.wait(MessageId{1}));
  is_told(gone.split(0).status());
  is_told(gone.shrink().status());
  is_told(gone.grow({}, {}).status());
  is_told(gone.failure().status);
  EXPECT_EQ(gone.failure().rank, -1);
  EXPECT_NE(gone.explain(barrier).find("was moved from"), std::string::npos);
  EXPECT_NE(gone.explain_stream(barrier).find("was moved from"), std::string::npos);
  EXPECT_EQ(gone.chosen(barrier), Algorithm::automatic);
  EXPECT_EQ(gone.rank(), -1);
  EXPECT_EQ(gone.size(), 0);
  EXPECT_EQ(gone.address(0), "");
  EXPECT_EQ(gone.engine(), nullptr);
  gone.abort();

  EXPECT_TRUE(group.run(barrier));
  EXPECT_TRUE(group.failure().status);
  gone = std::move(group);  // and may be used again
  EXPECT_TRUE(gone.run(barrier));
  EXPECT_EQ(gone.size(), 1);
}

TEST(MovedFrom, AnEngineThatWasMovedFromMakesNoCommunicator) {
  EngineOptions options;
  options.loopback = make_loopback();
  options.transports = {"loopback"};
  Engine gone = *Engine::open(options);
  const std::array<std::string, 1> addresses{gone.address()};
  const Engine engine = std::move(gone);
  EXPECT_EQ(Communicator::create(gone, 0, addresses).status().code(), ErrorCode::closed);
  const std::array<std::string, 2> two{engine.address(), engine.address()};
  EXPECT_EQ(Communicator::create(gone, 0, two).status().code(), ErrorCode::closed);
}

}  // namespace
}  // namespace fairway

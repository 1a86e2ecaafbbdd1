// An Engine that was moved from is an error, not a crash: a program that keeps the wrong one of the two is told.
#include <array>
#include <utility>

#include <gtest/gtest.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

namespace fairway {
namespace {

TEST(MovedFrom, EveryCallSaysThatItIsClosedAndTheOtherGoesOn) {
  const Timeout patience = std::chrono::seconds(20);
  EngineOptions options;
  options.loopback = make_loopback();
  options.transports = {"loopback"};
  Engine gone = *Engine::open(options);
  const std::string address = gone.address();
  const Region region = *gone.allocate(4096, Access::all);
  Engine engine = std::move(gone);

  const auto is_told = [](const Status& status) {
    EXPECT_EQ(status.code(), ErrorCode::closed) << status.to_string();
    EXPECT_NE(status.message().find("was moved from"), std::string::npos) << status.to_string();
  };
  const PeerId peer{};
  const TransferId id{};
  std::array<TransferId, 1> ids{};
  std::array<Completion, 1> completions;
  std::array<Notification, 1> notifications;
  std::array<PeerEvent, 1> events;
  is_told(gone.connect(address, patience).status());
  is_told(gone.disconnect(peer));
  is_told(gone.wait_peer_event(patience));
  is_told(gone.register_memory(completions.data(), sizeof completions, Access::all).status());
  is_told(gone.allocate(4096, Access::all).status());
  is_told(gone.deregister(region, patience));
  is_told(gone.describe(region).status());
  is_told(gone.import_region(peer, {}).status());
  is_told(gone.release(RemoteRegion{}));
  is_told(gone.publish("name", region));
  is_told(gone.lookup(peer, "name", patience).status());
  is_told(gone.map(region, 0, patience).status());
  is_told(gone.write(peer, Extent{}).status());
  is_told(gone.read(peer, Extent{}).status());
  is_told(gone.send(peer, 0, Slice{}).status());
  is_told(gone.receive(peer, 0, Slice{}).status());
  is_told(gone.send(peer, 0, std::span<const Extent>{}).status());
  is_told(gone.receive(peer, 0, std::span<const Extent>{}).status());
  is_told(gone.probe(peer, 0, patience).status());
  is_told(gone.fetch_add(peer, {}, 1).status());
  is_told(gone.compare_swap(peer, {}, 1, 2).status());
  is_told(gone.submit(std::array<Request, 1>(), ids).status);
  is_told(gone.unmap(MappingId{}));
  is_told(gone.stream_put(MappingId{}, StreamPut{}, nullptr));
  is_told(gone.stream_wait_signal(StreamWait{}, nullptr));
  is_told(gone.stream_wait(id, nullptr));
  is_told(gone.wait(id, patience).status());
  is_told(gone.wait_any(ids, patience).status());
  is_told(gone.wait_all(ids, completions, patience));
  is_told(gone.flush(peer, patience));
  is_told(gone.drain(patience));
  is_told(gone.make_queue(16).status());
  is_told(gone.cancel(id, patience).status());
  is_told(gone.wait_notification(patience));
  is_told(gone.wait_counter(1, 1, patience));
  is_told(gone.make_counters(1).status());
  is_told(gone.release_counters(CounterSpaceId{}));
  is_told(gone.wait_notification(CounterSpaceId{}, patience));
  is_told(gone.wait(QueueId{}, patience));
  is_told(gone.end_queue(QueueId{}));
  is_told(gone.explain(Request{}).status());
  is_told(gone.explain(peer).status());
  is_told(gone.explain(id).status());
  EXPECT_EQ(gone.poll(completions) + gone.poll_notifications(notifications) + gone.poll_peer_events(events), 0u);
  EXPECT_EQ(gone.fence_state(region), Fence::unknown);
  EXPECT_EQ(gone.fd(), -1);
  EXPECT_EQ(gone.address(), "");
  EXPECT_EQ(gone.metrics().regions, 0u);
  EXPECT_TRUE(gone.port_counters().empty());
  EXPECT_FALSE(gone.writable());
  EXPECT_FALSE(gone.is_open());
  gone.close();

  EXPECT_EQ(engine.address(), address);
  EXPECT_TRUE(engine.deregister(region, patience));
  gone = std::move(engine);  // and may be used again
  EXPECT_TRUE(gone.is_open());
  EXPECT_TRUE(gone.allocate(4096, Access::all));
}

}  // namespace
}  // namespace fairway

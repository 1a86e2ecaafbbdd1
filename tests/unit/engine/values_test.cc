#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "engine/tables/request_check.h"

namespace fairway::engine {
namespace {

// What refuses a request that is good but for this.
std::string refusal(const std::function<void(Request&)>& spoil) {
  Request request;
  request.layout = Extent{};
  spoil(request);
  const Status status = check_values(request);
  EXPECT_TRUE(status.is_ok() || status.code() == ErrorCode::invalid_argument) << status.to_string();
  return status.message();
}

TEST(Values, AGoodRequestPasses) {
  EXPECT_EQ(refusal([](Request&) {}), "");
}

TEST(Values, WhatIsNoneIsRefusedByItsName) {
  const auto names = [](const std::string& text, const char* name) { return text.find(name) != std::string::npos; };
  EXPECT_TRUE(names(refusal([](Request& r) { r.operation = Operation(99); }), "Operation(99)"));
  EXPECT_TRUE(names(refusal([](Request& r) { r.options.notify.kind = NotifyKind(77); }), "NotifyKind(77)"));
  EXPECT_TRUE(names(refusal([](Request& r) { r.options.deliver = Deliver(9); }), "Deliver(9)"));
  EXPECT_TRUE(names(refusal([](Request& r) { r.options.priority = Priority(3); }), "Priority(3)"));
  EXPECT_TRUE(names(refusal([](Request& r) { r.options.deliver = Deliver::to_callback; }), "callback"));
}

TEST(Values, EachEnumerationsLastValueIsOne) {
  const auto any = [](const Completion&, void*) {};
  EXPECT_EQ(refusal([](Request& r) { r.operation = Operation::compare_swap; }), "");
  EXPECT_EQ(refusal([](Request& r) { r.options.notify.kind = NotifyKind::signal; }), "");
  EXPECT_EQ(refusal([](Request& r) { r.options.priority = Priority::urgent; }), "");
  EXPECT_EQ(refusal([&](Request& r) {
              r.options.deliver = Deliver::to_callback;
              r.options.callback = any;
            }),
            "");
}

TEST(Values, OfMemory) {
  EXPECT_TRUE(check_values(Access::none, MemoryKind::host));
  EXPECT_TRUE(check_values(Access::all, MemoryKind::managed));
  EXPECT_EQ(check_values(Access(8), MemoryKind::host).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(check_values(Access::read, MemoryKind(4)).code(), ErrorCode::invalid_argument);
}

TEST(Values, OfOptions) {
  const auto refused = [](const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options;
    spoil(options);
    return !check_values(options).is_ok();
  };
  EXPECT_FALSE(refused([](EngineOptions&) {}));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.workers = 0; }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.workers = 257; }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.max_counters = 0; }));
  EXPECT_FALSE(refused([](EngineOptions& o) { o.max_regions = (1u << 24) - 1; }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.max_regions = 1u << 24; }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.unexpected_bytes_per_peer = 2047; }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.progress = Progress(2); }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.rdma.on_demand = OnDemand(3); }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.spin = std::chrono::microseconds(-1); }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.spin = std::chrono::microseconds::max(); }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.peer_timeout = std::chrono::milliseconds(-5); }));
  EXPECT_TRUE(refused([](EngineOptions& o) { o.peer_timeout = std::chrono::milliseconds::max(); }));
}

}  // namespace
}  // namespace fairway::engine

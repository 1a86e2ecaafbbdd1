#include "engine/mapped_regions.h"

#include <functional>

#include <gtest/gtest.h>

namespace fairway::engine {
namespace {

alignas(8) std::byte mapped[4096];
std::uint32_t mapping_over = 0;

Mapping mapping_with(Access access, bool atomics = true) {
  Mapping mapping;
  mapping.address = mapped;
  mapping.size_bytes = sizeof mapped;
  mapping.gpu = 3;
  mapping.access = access;
  mapping.ended = &mapping_over;
  mapping.atomics = atomics;
  return mapping;
}

ErrorCode put_refusal(const Mapping& mapping, const std::function<void(StreamPut&)>& spoil) {
  StreamPut put;
  put.from = mapped;
  put.length = 64;
  spoil(put);
  return plan_put(mapping, put).status().code();
}

TEST(MappedRegions, APutGoesWhereItsMappingIs) {
  StreamPut put;
  put.offset = 1024;
  put.from = mapped + 8;
  put.length = sizeof mapped - 1024;
  put.signal_offset = sizeof mapped - 8;
  put.signal_value = 9;
  put.signal_add = false;
  put.by = PutBy::kernel;
  const auto work = plan_put(mapping_with(Access::write), put);
  ASSERT_TRUE(work) << work.status().to_string();
  EXPECT_EQ(work->gpu, 3);
  EXPECT_EQ(work->to, mapped + 1024);
  EXPECT_EQ(work->from, mapped + 8);
  EXPECT_EQ(work->length, put.length);
  EXPECT_EQ(work->by, PutBy::kernel);
  EXPECT_EQ(reinterpret_cast<std::byte*>(work->signal), mapped + sizeof mapped - 8);
  EXPECT_EQ(work->value, 9u);
  EXPECT_FALSE(work->add);
  put.signal_offset = StreamPut::kNone;
  EXPECT_EQ(plan_put(mapping_with(Access::write), put)->signal, nullptr);
}

TEST(MappedRegions, APutStaysInsideItsMapping) {
  const Mapping all = mapping_with(Access::all);
  EXPECT_EQ(put_refusal(all, [](StreamPut&) {}), ErrorCode::ok);
  EXPECT_EQ(put_refusal(all, [](StreamPut& p) { p.offset = sizeof mapped - 63; }), ErrorCode::out_of_range);
  EXPECT_EQ(put_refusal(all, [](StreamPut& p) { p.offset = ~std::uint64_t{0}; }), ErrorCode::out_of_range);
  EXPECT_EQ(put_refusal(all, [](StreamPut& p) { p.signal_offset = sizeof mapped; }), ErrorCode::out_of_range);
  EXPECT_EQ(put_refusal(all, [](StreamPut& p) { p.signal_offset = 12; }), ErrorCode::invalid_argument);
  Mapping small = all;
  small.size_bytes = 7;
  EXPECT_EQ(put_refusal(small,
                        [](StreamPut& p) {
                          p.length = 0;
                          p.signal_offset = 0;
                        }),
            ErrorCode::out_of_range);
}

TEST(MappedRegions, APutIsRefusedByTheNameOfWhatItLacks) {
  EXPECT_EQ(put_refusal(mapping_with(Access::read), [](StreamPut&) {}), ErrorCode::access_denied);
  EXPECT_EQ(put_refusal(mapping_with(Access::all), [](StreamPut& p) { p.from = nullptr; }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(put_refusal(mapping_with(Access::all), [](StreamPut& p) { p.by = PutBy(3); }), ErrorCode::invalid_argument);
  EXPECT_EQ(put_refusal(mapping_with(Access::all), [](StreamPut& p) { p.blocks = 1024; }), ErrorCode::ok);
  EXPECT_EQ(put_refusal(mapping_with(Access::all), [](StreamPut& p) { p.blocks = 1025; }), ErrorCode::invalid_argument);
  const auto by_stream = [](StreamPut& p) {
    p.by = PutBy::copy_engine;
    p.signal_offset = 0;
    p.signal_add = false;
    p.signal_by_stream = true;
  };
  EXPECT_EQ(put_refusal(mapping_with(Access::all, false), by_stream), ErrorCode::ok);
  for (const auto& spoil : {+[](StreamPut& p) { p.by = PutBy::kernel; }, +[](StreamPut& p) { p.signal_add = true; },
                            +[](StreamPut& p) { p.signal_offset = StreamPut::kNone; }})
    EXPECT_EQ(put_refusal(mapping_with(Access::all, true),
                          [&](StreamPut& p) {
                            by_stream(p);
                            spoil(p);
                          }),
              ErrorCode::invalid_argument);
  const auto adds = [](StreamPut& p) { p.signal_offset = 0; };
  EXPECT_EQ(put_refusal(mapping_with(Access::all, false), adds), ErrorCode::unsupported);
  EXPECT_EQ(put_refusal(mapping_with(Access::all, true), adds), ErrorCode::ok);
  mapping_over = static_cast<std::uint32_t>(ErrorCode::revoked);
  EXPECT_EQ(put_refusal(mapping_with(Access::all), [](StreamPut&) {}), ErrorCode::revoked);
  mapping_over = 0;
}

TEST(MappedRegions, AWaitHasItsWords) {
  alignas(8) std::uint64_t word = 0, count = 0;
  std::uint32_t outcome = 0;
  const auto odd = [](auto* address) {
    return reinterpret_cast<decltype(address)>(reinterpret_cast<std::byte*>(address) + 2);
  };
  StreamWait good;
  good.word = &word;
  good.count = &count;
  good.outcome = &outcome;
  EXPECT_TRUE(check_wait(good));
  StreamWait bad = good;
  bad.word = nullptr;
  EXPECT_EQ(check_wait(bad).code(), ErrorCode::invalid_argument);
  bad = good;
  bad.count = odd(&count);
  EXPECT_EQ(check_wait(bad).code(), ErrorCode::invalid_argument);
  bad = good;
  bad.outcome = odd(&outcome);
  EXPECT_EQ(check_wait(bad).code(), ErrorCode::invalid_argument);
  bad.outcome = nullptr;
  EXPECT_EQ(check_wait(bad).code(), ErrorCode::invalid_argument);
  good.count = nullptr;
  EXPECT_TRUE(check_wait(good));
}

}  // namespace
}  // namespace fairway::engine

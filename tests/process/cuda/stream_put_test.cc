#include "process/cuda/mapping_pair.h"

// Streams that put bytes and signals into a peer's GPU, and wait for them.
namespace fairway {
namespace {

using namespace gpu_pair;

class CudaStreamPut : public CudaMapping, public testing::WithParamInterface<PutBy> {};

TEST_P(CudaStreamPut, BytesComeBeforeTheirSignal) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  const Region from = registered(kBytes, 0);
  gpus_->write(from.address, patterns(1, kBytes));
  const auto stream = make_stream(0);
  std::uint64_t signals = 0;
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{100'001}, std::uint64_t{3} << 20}) {
    StreamPut put;
    put.from = from.address;
    put.length = length;
    put.by = GetParam();
    put.signal_offset = kSignal;
    const Status status = engine_->stream_put(mapping->id, put, stream);
    if (status.code() == ErrorCode::unsupported && status.message().find("nvcc") != std::string::npos)
      GTEST_SKIP() << status.message();
    ASSERT_TRUE(status) << status.to_string();
    synchronize(stream);
    EXPECT_EQ(ask("word"), std::to_string(++signals));
    EXPECT_EQ(ask("back " + std::to_string(length)), "as sent");
  }
}
INSTANTIATE_TEST_SUITE_P(By, CudaStreamPut, testing::Values(PutBy::automatic, PutBy::kernel, PutBy::copy_engine),
                         [](const auto& row) {
                           return row.param == PutBy::automatic ? "automatic"
                                  : row.param == PutBy::kernel  ? "kernel"
                                                                : "copy_engine";
                         });

// Any number of blocks moves all bytes; a stream that stores the signal itself does so behind them.
TEST_F(CudaMapping, ABlockMovesWhatManyDoAndAStreamStoresItsSignal) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  const Region from = registered(kBytes, 0);
  gpus_->write(from.address, patterns(1, kBytes));
  const auto stream = make_stream(0);
  std::uint64_t value = 40;
  for (const std::uint32_t blocks : {1U, 8U, 1000U})
    for (const bool by_stream : {false, true}) {
      StreamPut put;
      put.from = from.address;
      put.length = 300'001;
      put.by = by_stream ? PutBy::copy_engine : PutBy::kernel;
      put.signal_offset = kSignal;
      put.signal_value = ++value;
      put.signal_add = false;
      put.blocks = blocks;
      put.signal_by_stream = by_stream;
      const Status status = engine_->stream_put(mapping->id, put, stream);
      if (status.code() == ErrorCode::unsupported && status.message().find("nvcc") != std::string::npos)
        GTEST_SKIP() << status.message();
      ASSERT_TRUE(status) << status.to_string();
      synchronize(stream);
      EXPECT_EQ(ask("word"), std::to_string(value));
      EXPECT_EQ(ask("back " + std::to_string(put.length)), "as sent");
    }
}

TEST_F(CudaMapping, AStreamWaitsForEachSignalInTurnAndNotForEver) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const Region words = registered(4096, 1);  // this process's own other GPU waits
  const auto mapping = engine_->map(words, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  const auto puts = make_stream(0), waits = make_stream(1);
  StreamWait wait;
  wait.word = reinterpret_cast<std::uint64_t*>(words.address);
  wait.count = reinterpret_cast<std::uint64_t*>(words.address + 64);
  wait.outcome = reinterpret_cast<std::uint32_t*>(words.address + 128);
  wait.timeout = kSoon;
  StreamPut put;
  put.signal_offset = 0;
  const auto outcome = [&] {
    synchronize(waits);
    std::uint32_t code = 0;
    gpus_->read(std::as_writable_bytes(std::span(&code, 1)), words.address + 128, 1);
    return static_cast<ErrorCode>(code);
  };
  for (int turn = 0; turn < 20; ++turn) {
    Status status = engine_->stream_wait_signal(wait, waits);
    if (status.code() == ErrorCode::unsupported) GTEST_SKIP() << status.message();
    ASSERT_TRUE(status) << status.to_string();
    ASSERT_TRUE(engine_->stream_put(mapping->id, put, puts));
    ASSERT_EQ(outcome(), ErrorCode::ok);
  }
  wait.timeout = std::chrono::milliseconds(5);
  ASSERT_TRUE(engine_->stream_wait_signal(wait, waits));
  EXPECT_EQ(outcome(), ErrorCode::deadline_exceeded);
  wait.timeout = kSoon;
  wait.with = mapping->id;
  ASSERT_TRUE(engine_->stream_wait_signal(wait, waits));
  EXPECT_EQ(engine_->deregister(words, std::chrono::milliseconds(50)).code(), ErrorCode::not_fenced);
  EXPECT_EQ(outcome(), ErrorCode::revoked) << "who waits for what will not come any more is let go";
  ASSERT_TRUE(engine_->unmap(mapping->id));
}

TEST_F(CudaMapping, WhatLeavesAMappingIsRefused) {
  ASSERT_NO_FATAL_FAILURE(meet());
  const auto mapping = engine_->map(remote_, 0);
  ASSERT_TRUE(mapping) << mapping.status().to_string();
  const Region from = registered(4096, 0);
  const auto stream = make_stream(0), other = make_stream(1);
  (void)registered(4096, 1);
  StreamPut good;
  good.from = from.address;
  good.length = 64;
  const auto code = [&](auto change, sys::cuda::Stream on) {
    StreamPut put = good;
    change(put);
    return engine_->stream_put(mapping->id, put, on).code();
  };
  EXPECT_EQ(code([](StreamPut& put) { put.offset = kBytes - 63; }, stream), ErrorCode::out_of_range);
  EXPECT_EQ(code([](StreamPut& put) { put.offset = ~std::uint64_t{0}; }, stream), ErrorCode::out_of_range);
  EXPECT_EQ(code([](StreamPut& put) { put.length = ~std::uint64_t{0}; }, stream), ErrorCode::out_of_range);
  EXPECT_EQ(code([](StreamPut& put) { put.signal_offset = kBytes - 7; }, stream), ErrorCode::out_of_range);
  EXPECT_EQ(code([](StreamPut& put) { put.signal_offset = 4; }, stream), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](StreamPut& put) { put.from = nullptr; }, stream), ErrorCode::invalid_argument);
  EXPECT_EQ(code([](StreamPut&) {}, nullptr), ErrorCode::invalid_argument);
  // A kernel that reads it would end the context.
  alignas(4096) static std::byte plain[8192];
  EXPECT_EQ(code([](StreamPut& put) { put.from = plain; }, stream), ErrorCode::invalid_argument);
  gpus_->on(0, [&] { return gpus_->driver()->cuMemHostRegister_v2(plain, 4096, 0); });
  const auto half = [](StreamPut& put) {
    put.from = plain + 2048;
    put.length = 4096;
  };
  EXPECT_EQ(code(half, stream), ErrorCode::invalid_argument) << "pinned in part";
  gpus_->driver()->cuMemHostUnregister(plain);
  if (gpus_->devices() > 1) {
    EXPECT_EQ(code([](StreamPut&) {}, other), ErrorCode::invalid_argument) << "another GPU's stream";
  }
  EXPECT_EQ(engine_->stream_put({99}, good, stream).code(), ErrorCode::not_found);
  EXPECT_NE(ask("deregister 50").find("not_fenced"), std::string::npos);
  EXPECT_EQ(ending().kind, PeerEvent::Kind::mapping_ended);
  EXPECT_EQ(engine_->stream_put(mapping->id, good, stream).code(), ErrorCode::revoked) << "its owner wants it back";
  StreamWait wait;
  EXPECT_EQ(engine_->stream_wait_signal(wait, stream).code(), ErrorCode::invalid_argument) << "no word";
  wait.word = reinterpret_cast<std::uint64_t*>(from.address);
  EXPECT_EQ(engine_->stream_wait_signal(wait, stream).code(), ErrorCode::invalid_argument)
      << "nowhere to say how it ended";
  wait.outcome = reinterpret_cast<std::uint32_t*>(from.address + 8);
  wait.with = {99};
  EXPECT_EQ(engine_->stream_wait_signal(wait, stream).code(), ErrorCode::not_found);
}

}  // namespace
}  // namespace fairway

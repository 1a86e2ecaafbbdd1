#include <cstring>

#include <gtest/gtest.h>

#include "transport/cuda/exporter.h"

namespace fairway::transport::cuda {
namespace {

Handle some(Export by) {
  Handle handle;
  handle.by = by;
  handle.base = 0x7f0000000000;
  handle.size = 22 << 20;
  if (by == Export::file) handle.mappings = {2 << 20, 2 << 20, 2 << 20, 16 << 20};
  for (std::size_t i = 0; i < 16; ++i) {
    handle.process[i] = static_cast<std::byte>(i);
    handle.device.bytes[i] = static_cast<unsigned char>(100 + i);
  }
  for (std::size_t i = 0; i < sizeof handle.ipc.bytes; ++i) handle.ipc.bytes[i] = static_cast<unsigned char>(i * 3);
  handle.why = "it comes from a pool";
  return handle;
}

TEST(CudaHandle, SaysTheSameOnTheOtherSide) {
  for (const Export by : {Export::none, Export::ipc, Export::file}) {
    const Handle sent = some(by);
    const auto got = decode(encode(sent));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->by, by);
    EXPECT_EQ(got->process, sent.process);
    EXPECT_EQ(got->device, sent.device);
    EXPECT_EQ(got->base, sent.base);
    EXPECT_EQ(got->size, sent.size);
    EXPECT_EQ(got->mappings, sent.mappings);
    EXPECT_EQ(got->why, by == Export::none ? sent.why : "");
    if (by == Export::ipc) {
      EXPECT_EQ(std::memcmp(got->ipc.bytes, sent.ipc.bytes, sizeof sent.ipc.bytes), 0);
    }
  }
}

TEST(CudaHandle, CutShortOrOfAnotherVersionIsRefused) {
  for (const Export by : {Export::none, Export::ipc, Export::file}) {
    auto bytes = encode(some(by));
    for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(std::span(bytes).first(size))) << size;
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes));
    bytes.pop_back();
    bytes[0] = std::byte{9};
    EXPECT_FALSE(decode(bytes));
  }
}

TEST(CudaHandle, MappingsThatAreNotTogetherTheWholeAreRefused) {
  Handle handle = some(Export::file);
  handle.mappings = {2 << 20};
  EXPECT_FALSE(decode(encode(handle)));
  handle.mappings = {};
  EXPECT_FALSE(decode(encode(handle)));
  handle.mappings = {22 << 20, 1};
  EXPECT_FALSE(decode(encode(handle)));
  handle.mappings = std::vector<std::uint64_t>(100'000, 1);
  handle.size = 100'000;
  EXPECT_FALSE(decode(encode(handle))) << "more than anybody maps";
}

}  // namespace
}  // namespace fairway::transport::cuda

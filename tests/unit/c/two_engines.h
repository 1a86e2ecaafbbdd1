#pragma once

#include <cstring>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fairway.h"

// Two connected engines as a caller in another language has them, for the tests of the C ABI.
namespace c_abi {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* held) const {
    Free(held);
  }
};
using EnginePtr = std::unique_ptr<fairway_engine, Freed<fairway_engine_free>>;
using LoopbackPtr = std::unique_ptr<fairway_loopback, Freed<fairway_loopback_free>>;

// The words of a failure, freed.
inline std::string text_of(fairway_error* error) {
  std::string text = fairway_error_text(error);
  fairway_error_free(error);
  return text;
}

template <class T>
T sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

class CAbi : public testing::Test {
 protected:
  void SetUp() override {
    fairway_options options;
    fairway_options_init(&options);
    options.loopback = meeting_place.get();
    options.name = "alice";
    fairway_engine* opened = nullptr;
    ASSERT_EQ(FAIRWAY_OK, fairway_open(&options, &opened, nullptr));
    alice.reset(opened);
    options.name = "bob";
    ASSERT_EQ(FAIRWAY_OK, fairway_open(&options, &opened, nullptr));
    bob.reset(opened);
    ASSERT_EQ(FAIRWAY_OK, fairway_connect(alice.get(), fairway_address(bob.get()), 5'000'000, &peer, nullptr));
    ASSERT_EQ(FAIRWAY_OK, fairway_allocate(alice.get(), 65536, FAIRWAY_ACCESS_NONE, &draft, nullptr));
    ASSERT_EQ(FAIRWAY_OK, fairway_allocate(bob.get(), 65536, 7, &inbox, nullptr));
    ASSERT_EQ(FAIRWAY_OK, fairway_publish(bob.get(), "inbox", inbox.id, nullptr));
    ASSERT_EQ(FAIRWAY_OK, fairway_lookup(alice.get(), peer, "inbox", 5'000'000, &remote, nullptr));
    auto* bytes = static_cast<unsigned char*>(draft.address);
    for (int i = 0; i < 65536; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  }

  fairway_request request() const {
    fairway_request out;
    fairway_request_init(&out);
    out.peer = peer;
    out.extent = {{draft.id, 0, 4096}, {remote.id, 0}};
    return out;
  }
  fairway_code submit(const fairway_request& given, fairway_transfer* id, fairway_error** error = nullptr) {
    std::size_t taken = 0;
    const fairway_code code = fairway_submit(alice.get(), &given, 1, id, &taken, error);
    EXPECT_EQ(code == FAIRWAY_OK ? 1u : 0u, taken);
    return code;
  }
  fairway_completion move(const fairway_request& given) {
    fairway_transfer id{};
    EXPECT_EQ(FAIRWAY_OK, submit(given, &id));
    fairway_completion done{};
    EXPECT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, -1, &done, nullptr));
    EXPECT_EQ(nullptr, done.error) << text_of(done.error);
    return done;
  }
  bool same(std::size_t local, std::size_t far, std::size_t count) const {
    return std::memcmp(static_cast<char*>(draft.address) + local, static_cast<char*>(inbox.address) + far, count) == 0;
  }

  LoopbackPtr meeting_place{fairway_loopback_make()};
  EnginePtr alice, bob;
  fairway_peer peer{};
  fairway_region draft = sized<fairway_region>(), inbox = sized<fairway_region>();
  fairway_remote_region remote = sized<fairway_remote_region>();
};

}  // namespace c_abi

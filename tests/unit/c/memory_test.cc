#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "two_engines.h"

// The caller's own memory, the parts of an error, and what is left of a transfer and a peer after their end.
namespace c_abi {
namespace {

TEST_F(CAbi, TheCallersMemoryServesUntilItIsDeregistered) {
  std::array<std::uint64_t, 512> words{};
  fairway_memory_source source;
  fairway_memory_source_init(&source);
  EXPECT_EQ(sizeof source, source.struct_size);
  EXPECT_EQ(-1, source.fd);
  fairway_region mine = sized<fairway_region>();
  ASSERT_EQ(FAIRWAY_OK,
            fairway_register(bob.get(), words.data(), sizeof words, FAIRWAY_ACCESS_WRITE, &source, &mine, nullptr));
  EXPECT_EQ(words.data(), mine.address);
  EXPECT_EQ(sizeof words, mine.size_bytes);
  ASSERT_EQ(FAIRWAY_OK, fairway_publish(bob.get(), "words", mine.id, nullptr));
  fairway_remote_region far = sized<fairway_remote_region>();
  ASSERT_EQ(FAIRWAY_OK, fairway_lookup(alice.get(), peer, "words", 5'000'000, &far, nullptr));
  fairway_request into = request();
  into.extent.remote = {far.id, 0};
  EXPECT_EQ(4096u, move(into).bytes);
  EXPECT_EQ(0, std::memcmp(words.data(), draft.address, sizeof words));

  EXPECT_EQ(FAIRWAY_FENCE_REGISTERED, fairway_fence_state(bob.get(), mine.id));
  ASSERT_EQ(FAIRWAY_OK, fairway_deregister(bob.get(), mine.id, 5'000'000, nullptr));
  EXPECT_EQ(FAIRWAY_FENCE_FENCED, fairway_fence_state(bob.get(), mine.id));
  EXPECT_EQ(FAIRWAY_FENCE_UNKNOWN, fairway_fence_state(bob.get(), {}));
  EXPECT_EQ(FAIRWAY_FENCE_UNKNOWN, fairway_fence_state(nullptr, mine.id));
  words.fill(0);
  fairway_transfer id{};
  fairway_error* error = nullptr;
  fairway_completion done{};
  fairway_code code = submit(into, &id, &error);
  if (code == FAIRWAY_OK) {
    ASSERT_EQ(FAIRWAY_OK, fairway_wait(alice.get(), id, -1, &done, nullptr));
    code = done.code;
    error = done.error;
  }
  ASSERT_NE(nullptr, error);
  EXPECT_EQ(code, fairway_error_code(error));
  EXPECT_NE(FAIRWAY_EFFECT_UNKNOWN, fairway_error_effect(error));
  EXPECT_NE(nullptr, std::strstr(fairway_error_peer(error), "bob")) << fairway_error_text(error);
  EXPECT_NE(nullptr, std::strstr(fairway_error_text(error), fairway_error_message(error)));
  EXPECT_NE(nullptr, std::strstr(fairway_error_text(error), fairway_error_link(error)));
  EXPECT_STRNE("", fairway_error_message(error));
  fairway_error_free(error);
  EXPECT_EQ(0u, words[0]);
  EXPECT_NE(FAIRWAY_OK, fairway_deregister(bob.get(), mine.id, 0, nullptr));
}

TEST_F(CAbi, MemoryThatCannotBeRegisteredIsNamed) {
  fairway_region mine = sized<fairway_region>();
  fairway_error* error = nullptr;
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_register(bob.get(), nullptr, 8, 0, nullptr, &mine, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("address"));
  int word = 0;
  fairway_memory_source source{};  // without its size
  EXPECT_EQ(FAIRWAY_INVALID_ARGUMENT, fairway_register(bob.get(), &word, sizeof word, 0, &source, &mine, &error));
  EXPECT_NE(std::string::npos, text_of(error).find("struct_size"));
}

TEST_F(CAbi, PartsOfNoErrorAreEmpty) {
  EXPECT_STREQ("", fairway_error_message(nullptr));
  EXPECT_STREQ("", fairway_error_peer(nullptr));
  EXPECT_STREQ("", fairway_error_link(nullptr));
  EXPECT_EQ(FAIRWAY_OK, fairway_error_code(nullptr));
  EXPECT_EQ(FAIRWAY_EFFECT_NOT_APPLIED, fairway_error_effect(nullptr));
}

TEST_F(CAbi, TheVersionIsThreeNumbers) {
  int major = -1, minor = -1, patch = -1, length = 0;
  EXPECT_EQ(3, std::sscanf(fairway_version(), "%d.%d.%d%n", &major, &minor, &patch, &length));
  EXPECT_EQ(std::strlen(fairway_version()), static_cast<std::size_t>(length));
}

TEST_F(CAbi, ATransferIsExplainedAfterItsEnd) {
  EXPECT_EQ(1, fairway_writable(alice.get()));
  EXPECT_EQ(0, fairway_writable(nullptr));
  const fairway_completion done = move(request());
  fairway_explanation* why = nullptr;
  ASSERT_EQ(FAIRWAY_OK, fairway_explain_transfer(alice.get(), done.id, &why, nullptr));
  EXPECT_STREQ("write 4096 bytes", why->operation);
  EXPECT_EQ(4096u, why->bytes_done);
  EXPECT_NE(nullptr, std::strstr(why->text, "loopback"));
  fairway_explanation_free(why);
  EXPECT_EQ(FAIRWAY_NOT_FOUND, fairway_explain_transfer(alice.get(), {}, &why, nullptr));
}

TEST_F(CAbi, ADisconnectedPeerIsAHandleOfThePast) {
  ASSERT_EQ(FAIRWAY_OK, fairway_disconnect(alice.get(), peer, nullptr));
  EXPECT_NE(FAIRWAY_OK, fairway_disconnect(alice.get(), peer, nullptr));
  fairway_peer again{};
  ASSERT_EQ(FAIRWAY_OK, fairway_connect(alice.get(), fairway_address(bob.get()), 5'000'000, &again, nullptr));
  EXPECT_TRUE(again.slot != peer.slot || again.generation != peer.generation);
  EXPECT_EQ(FAIRWAY_OK, fairway_lookup(alice.get(), again, "inbox", 5'000'000, &remote, nullptr));
}

}  // namespace
}  // namespace c_abi

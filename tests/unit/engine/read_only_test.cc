// Memory that this process may read and not write: it can be sent, and whatever would arrive in it is refused before a
// byte moves.
#include <array>
#include <cstring>
#include <optional>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

#include "sys/process_memory.h"

namespace fairway {
namespace {

constexpr std::size_t kBytes = 8192;

class ReadOnly : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.loopback = make_loopback();
    options.transports = {GetParam()};
    left_.emplace(*Engine::open(options));
    right_.emplace(*Engine::open(options));
    const auto peer = left_->connect(right_->address(), std::chrono::seconds(20));
    ASSERT_TRUE(peer) << peer.status().to_string();
    peer_ = *peer;
    far_ = *right_->allocate(kBytes, Access::all);
    std::memset(far_.address, 9, kBytes);
    ASSERT_TRUE(right_->publish("far", far_));
    remote_ = *left_->lookup(peer_, "far", std::chrono::seconds(20));
    page_ =
        static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(page_, MAP_FAILED);
    std::memset(page_, 5, kBytes);
    ASSERT_EQ(::mprotect(page_, kBytes, PROT_READ), 0);
    const auto region = left_->register_memory(page_, kBytes, Access::read);
    ASSERT_TRUE(region) << region.status().to_string();
    region_ = *region;
  }
  void TearDown() override {
    left_.reset();
    right_.reset();
    ::munmap(page_, kBytes);
  }
  Status finish(const Result<TransferId>& id) {
    if (!id) return id.status();
    const auto done = left_->wait(*id, std::chrono::seconds(20));
    return done ? done->status : done.status();
  }

  std::optional<Engine> left_, right_;
  PeerId peer_;
  Region far_, region_;
  RemoteRegion remote_;
  std::byte* page_ = nullptr;
};

TEST_P(ReadOnly, MemoryCanBeSent) {
  const Status written = finish(left_->write(peer_, {{region_.id, 0, kBytes}, {remote_.id, 0}}));
  ASSERT_TRUE(written) << written.to_string();
  EXPECT_EQ(far_.address[kBytes - 1], std::byte{5});
}

TEST_P(ReadOnly, MemoryIsNotReadInto) {
  const std::array<Extent, 2> list{{{{region_.id, 0, 8}, {remote_.id, 0}}, {{region_.id, 64, 8}, {remote_.id, 8}}}};
  const std::array<std::uint64_t, 3> pages{0, 2, 1};
  const Layout layouts[] = {Extent{{region_.id, 0, 8}, {remote_.id, 0}},
                            Extent{{region_.id, 0, kBytes}, {remote_.id, 0}}, std::span<const Extent>(list),
                            Strided{{{region_.id, 0, 64}, {remote_.id, 0}}, 4, 128, 128},
                            Paged{region_.id, remote_.id, 512, 512, 512, pages, pages}};
  for (const Layout& layout : layouts) {
    const Status read = finish(left_->read(peer_, layout));
    EXPECT_EQ(read.code(), ErrorCode::access_denied) << layout.index() << ": " << read.to_string();
    EXPECT_NE(read.message().find("read-only"), std::string::npos) << read.to_string();
  }
  EXPECT_EQ(page_[0], std::byte{5});
}

TEST_P(ReadOnly, MemoryReceivesNothing) {
  const auto id = left_->receive(peer_, 3, {region_.id, 0, kBytes});
  ASSERT_FALSE(id);
  EXPECT_EQ(id.status().code(), ErrorCode::access_denied) << id.status().to_string();
}

TEST_P(ReadOnly, MemoryIsNotOpenedToPeersWrites) {
  for (const Access access : {Access::write, Access::atomic, Access::all}) {
    const auto refused = left_->register_memory(page_, kBytes, access);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.status().code(), ErrorCode::invalid_argument);
    EXPECT_NE(refused.status().message().find("read-only"), std::string::npos) << refused.status().to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Over, ReadOnly, testing::Values("loopback", "tcp"));

TEST(Writable, IsWhatTheMappingSays) {
  const auto map = [](int protection) {
    return ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* const both = map(PROT_READ | PROT_WRITE);
  void* const one = map(PROT_READ);
  EXPECT_TRUE(sys::writable(both, kBytes));
  EXPECT_FALSE(sys::writable(one, kBytes));
  EXPECT_FALSE(sys::writable(static_cast<char*>(one) + 100, 1));
  ASSERT_EQ(::mprotect(static_cast<char*>(both) + 4096, 4096, PROT_READ), 0);
  EXPECT_FALSE(sys::writable(both, kBytes)) << "its last page";
  EXPECT_TRUE(sys::writable(both, 4096));
  static const char constant[64] = "not for writing";
  EXPECT_FALSE(sys::writable(const_cast<char*>(constant), sizeof constant));
  int here = 0;
  EXPECT_TRUE(sys::writable(&here, sizeof here));
  ::munmap(both, kBytes);
  ::munmap(one, kBytes);
}

}  // namespace
}  // namespace fairway

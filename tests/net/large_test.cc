#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "net/side.h"
#include "support/open_engine.h"

// One transfer of more bytes than 32 bits count.
namespace fairway::net {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kPeriod = 63 * kMiB;  // 4 GiB is no multiple of it: an offset cut to 32 bits shows
constexpr std::uint64_t kTail = kMiB;
constexpr std::uint64_t kRepeats = 82;
constexpr std::uint64_t kLarge = kPeriod * kRepeats + kTail;  // 5.05 GiB

// Addresses for all of it, memory for one period and for the tail, which is memory of its own.
class Sparse {
 public:
  Sparse() {
    const sys::Fd file(::memfd_create("large", MFD_CLOEXEC));
    void* all = ::mmap(nullptr, kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || ::ftruncate(file.get(), kPeriod) != 0) return;
    at_ = static_cast<std::byte*>(all);
    bool mapped = true;
    for (std::uint64_t i = 0; i < kRepeats; ++i) mapped &= map(at_ + i * kPeriod, kPeriod, MAP_SHARED, file.get());
    if (!mapped || !map(tail(), kTail, MAP_PRIVATE | MAP_ANONYMOUS, -1)) unmap();
  }
  ~Sparse() { unmap(); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  [[nodiscard]] std::byte* data() const { return at_; }
  [[nodiscard]] std::byte* tail() const { return at_ + kPeriod * kRepeats; }
  void fill() const {
    for (std::uint64_t i = 0; i < kPeriod; ++i) at_[i] = pattern(1, i);
    for (std::uint64_t i = 0; i < kTail; ++i) tail()[i] = pattern(2, i);
  }
  // Written by the engine's thread before the other process asked, which ThreadSanitizer does not see.
  __attribute__((no_sanitize("thread"))) bool is_filled() const {
    for (std::uint64_t i = 0; i < kPeriod; ++i)
      if (at_[i] != pattern(1, i)) return false;
    for (std::uint64_t i = 0; i < kTail; ++i)
      if (tail()[i] != pattern(2, i)) return false;
    return true;
  }

 private:
  static bool map(std::byte* at, std::uint64_t size, int flags, int fd) {
    return ::mmap(at, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != MAP_FAILED;
  }
  void unmap() {
    if (at_ != nullptr) ::munmap(at_, kLarge);
    at_ = nullptr;
  }
  std::byte* at_ = nullptr;
};

#if defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;
#elif defined(__has_feature)
constexpr bool kShadowed = __has_feature(thread_sanitizer);
#else
constexpr bool kShadowed = false;
#endif

class Large : public TwoHosts {
 protected:
  void SetUp() override {
    if (kShadowed) GTEST_SKIP() << "ThreadSanitizer would need 20 GiB to watch a transfer of 5";
    TwoHosts::SetUp();
  }
};

TEST_F(Large, MoreThan4GiBInOneWriteAreAllThere) {
  ChildProcess child([&](ChildProcess::Line& line) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    there().enter();
    const Sparse memory;
    auto engine = open_engine(options_of("far", "10.77.1.2:0"));
    if (memory.data() == nullptr || !engine) return line.write("no memory, or no engine");
    const auto region = engine->register_memory(memory.data(), kLarge, Access::write);
    if (!region || !engine->publish("memory", *region)) return line.write("no region");
    line.write(engine->address());
    if (line.read() == "look") line.write(memory.is_filled() ? "filled" : "wrong bytes");
    line.read();
  });
  const std::string address = child.read();
  Near near(options_of("near", "10.77.1.1:0"));
  const Status met = near.meet(address);
  ASSERT_TRUE(met) << met.to_string();
  const Sparse memory;
  ASSERT_NE(memory.data(), nullptr);
  memory.fill();
  const auto from = near.engine->register_memory(memory.data(), kLarge, Access::none);
  ASSERT_TRUE(from);
  const Status written =
      near.finish(near.engine->write(near.peer, Extent{{from->id, 0, kLarge}, {near.remote.id, 0}}), 2 * kHang);
  ASSERT_TRUE(written) << written.to_string();
  child.write("look");
  EXPECT_EQ(child.read(), "filled");
}

}  // namespace
}  // namespace fairway::net

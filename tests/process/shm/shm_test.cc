#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/open_engine.h"

// What two processes of one host share, when the kernel or the memory's owner does not lend all that they could have.
namespace fairway {
namespace {

using control::ChildProcess;

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::uint64_t kBytes = 3u << 20;

EngineOptions options_of(const std::string& name) {
  EngineOptions options;
  options.name = name;
  options.transports = {"shm"};
  options.peer_timeout = std::chrono::milliseconds(1000);
  return options;
}

// Memory in a file of our own; sealed, so that it can be lent.
std::byte* map_file(std::uint64_t size, bool sealed, int& fd) {
  fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
  if (sealed) ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

enum class Lends { own_allocation, sealed_file, unsealed_file, ordinary, nothing_at_all, readable };

void serve(ChildProcess::Line& line, Lends lends) {
  if (lends == Lends::nothing_at_all) ::prctl(PR_SET_DUMPABLE, 0);
  auto engine = open_engine(options_of("child"));
  if (!engine) return line.write(engine.status().to_string());
  std::vector<std::byte> ordinary;
  Result<Region> memory = Status(ErrorCode::closed, "not made");
  if (lends == Lends::own_allocation || lends == Lends::readable) {
    memory = engine->allocate(kBytes, lends == Lends::readable ? Access::read : Access::all);
  } else if (lends == Lends::sealed_file || lends == Lends::unsealed_file) {
    int fd = -1;
    constexpr std::uint64_t kOffset = 12'344;  // in the middle of its pages
    std::byte* at = map_file(kBytes + kOffset, lends == Lends::sealed_file, fd);
    memory = engine->register_memory(at + kOffset, kBytes, Access::all, {MemoryKind::host, fd, kOffset});
    ::close(fd);
  } else {
    ordinary.resize(kBytes);
    memory = engine->register_memory(ordinary.data(), kBytes, Access::all);
  }
  if (!memory) return line.write(memory.status().to_string());
  if (!engine->publish("memory", *memory)) return line.write("not published");
  line.write(engine->address());
  line.read();
}

Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

struct Meeting {
  explicit Meeting(const std::string& address, Progress progress = Progress::threads) {
    EngineOptions options = options_of("parent");
    options.progress = progress;
    auto opened = open_engine(options);
    if (!opened) return;
    engine = std::make_unique<Engine>(std::move(*opened));
    if (const auto met = engine->connect(address, kSoon)) peer = *met;
    if (const auto found = engine->lookup(peer, "memory", kSoon)) remote = *found;
    if (const auto made = engine->allocate(2 * kBytes, Access::none)) ours = *made;
    for (std::uint64_t i = 0; i < kBytes; ++i) ours.address[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 29);
  }
  // There and back, whole and in pages, compared.
  void goes_there_and_back() {
    ASSERT_TRUE(finish(*engine, engine->write(peer, Extent{{ours.id, 0, kBytes}, {remote.id, 0}})));
    ASSERT_TRUE(finish(*engine, engine->read(peer, Extent{{ours.id, kBytes, kBytes}, {remote.id, 0}})));
    ASSERT_EQ(std::memcmp(ours.address, ours.address + kBytes, kBytes), 0);
    const auto added = engine->fetch_add(peer, {remote.id, 64}, 5);
    ASSERT_TRUE(finish(*engine, added));
  }
  std::string way() {
    Request request;
    request.operation = Operation::read;
    request.peer = peer;
    request.layout = Extent{{ours.id, 0, 8}, {remote.id, 0}};
    const auto plan = engine->explain(request);
    return plan ? plan->text() : plan.status().to_string();
  }
  std::unique_ptr<Engine> engine;
  PeerId peer;
  RemoteRegion remote;
  Region ours;
};

struct Case {
  Lends lends;
  const char* name;
  const char* way;
};

void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

class ShmProcess : public testing::TestWithParam<Case> {};

TEST_P(ShmProcess, BytesArriveByTheBestWayThatIsLent) {
  ChildProcess child([](auto& line) { serve(line, GetParam().lends); });
  Meeting met(child.read());
  ASSERT_TRUE(met.remote.id);
  ASSERT_NO_FATAL_FAILURE(met.goes_there_and_back());
  EXPECT_NE(met.way().find(GetParam().way), std::string::npos) << met.way();
}

INSTANTIATE_TEST_SUITE_P(Lent, ShmProcess,
                         testing::Values(Case{Lends::own_allocation, "allocation", "mapped here"},
                                         Case{Lends::sealed_file, "sealed_file", "mapped here"},
                                         Case{Lends::unsealed_file, "unsealed_file", "cross-memory attach"},
                                         Case{Lends::ordinary, "ordinary", "cross-memory attach"}),
                         [](const auto& row) { return std::string(row.param.name); });

// As root a process may reach any other; without that right one that is not dumpable cannot be reached.
class WithoutPtrace {
 public:
  WithoutPtrace() {
    ::syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct fewer[2] = {before_[0], before_[1]};
    fewer[0].effective &= ~(1u << CAP_SYS_PTRACE);
    ::syscall(SYS_capset, &header_, fewer);
  }
  ~WithoutPtrace() { ::syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2]{};
};

TEST(ShmRefused, WhereTheKernelForbidsAttachBytesGoThroughTheRingAndItSaysWhy) {
  ChildProcess child([](auto& line) { serve(line, Lends::nothing_at_all); });
  const std::string address = child.read();
  const WithoutPtrace fewer;
  Meeting met(address, Progress::caller);  // the worker is this thread, with its rights
  ASSERT_TRUE(met.remote.id);
  ASSERT_NO_FATAL_FAILURE(met.goes_there_and_back());
  EXPECT_NE(met.way().find("copied by both sides"), std::string::npos) << met.way();
  EXPECT_NE(met.way().find("process_vm_readv is refused"), std::string::npos) << met.way();
}

TEST(ShmRefused, ARegionThatPeersMayOnlyReadTakesNoWrite) {
  ChildProcess child([](auto& line) { serve(line, Lends::readable); });
  Meeting met(child.read());
  ASSERT_TRUE(met.remote.id);
  const Status refused =
      finish(*met.engine, met.engine->write(met.peer, Extent{{met.ours.id, 0, 64}, {met.remote.id, 0}}));
  EXPECT_EQ(refused.code(), ErrorCode::access_denied) << refused.to_string();
  EXPECT_TRUE(finish(*met.engine, met.engine->read(met.peer, Extent{{met.ours.id, 0, 64}, {met.remote.id, 0}})));
  EXPECT_NE(met.way().find("mapped here"), std::string::npos) << met.way();
}

TEST(ShmRefused, StrictIsolationMapsNothingAndAttachesToNothing) {
  ChildProcess child([](auto& line) { serve(line, Lends::own_allocation); });
  const std::string address = child.read();
  EngineOptions options = options_of("strict");
  options.strict_isolation = true;
  auto engine = open_engine(options);
  ASSERT_TRUE(engine);
  const auto peer = engine->connect(address, kSoon);
  ASSERT_TRUE(peer) << peer.status().to_string();
  const auto remote = engine->lookup(*peer, "memory", kSoon);
  const auto ours = engine->allocate(4096, Access::none);
  ASSERT_TRUE(remote && ours);
  ASSERT_TRUE(finish(*engine, engine->write(*peer, Extent{{ours->id, 0, 4096}, {remote->id, 0}})));
  EXPECT_EQ(engine->explain(*peer)->text().find("mapped here"), std::string::npos);
}

TEST(ShmRefused, AFrozenPeerIsGivenUpWithinItsBound) {
  ChildProcess child([](auto& line) { serve(line, Lends::own_allocation); });
  Meeting met(child.read());
  ASSERT_TRUE(met.remote.id);
  child.signal(SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  Status last;
  while (last && std::chrono::steady_clock::now() - start < std::chrono::seconds(10))
    last = finish(*met.engine, met.engine->write(met.peer, Extent{{met.ours.id, 0, 4096}, {met.remote.id, 0}}));
  const auto after = std::chrono::steady_clock::now() - start;
  child.signal(SIGCONT);
  EXPECT_EQ(last.code(), ErrorCode::peer_dead) << last.to_string();
  EXPECT_LT(after, std::chrono::milliseconds(3000));
  EXPECT_TRUE(met.engine->deregister(met.ours, kSoon)) << "nobody touches it any more";
}

}  // namespace
}  // namespace fairway

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/collectives.h"

#include "fault/control/etcd_server.h"
#include "fault/control/redis_server.h"

// Ranks of several hosts find each other by their names in etcd or Redis; each here is a process that takes itself to
// be on a host of its own.
namespace fairway {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A server of the system's, as this test sees it.
struct Store {
  virtual ~Store() = default;
  [[nodiscard]] virtual std::string url() const = 0;
  [[nodiscard]] virtual bool has_names() const = 0;
  virtual void kill() = 0;
};

struct Etcd : Store {
  [[nodiscard]] std::string url() const override { return server.url(); }
  [[nodiscard]] bool has_names() const override {  // any key
    return server.post("/v3/kv/range", R"({"key":"AA==","range_end":"AA=="})").find("\"kvs\"") != std::string::npos;
  }
  void kill() override { server.kill(); }
  control::EtcdServer server;
};

struct Redis : Store {
  [[nodiscard]] std::string url() const override { return server.url(); }
  [[nodiscard]] bool has_names() const override {
    const std::string keys = server.command("DBSIZE\r\n");
    return keys.starts_with(":") && !keys.starts_with(":0");
  }
  void kill() override { server.kill(); }
  control::RedisServer server;
};

// A rank in a process of its own. A resource.
class Rank {
 public:
  Rank(const std::string& directory, int rank, int size, Timeout timeout, const std::string& key = "one secret") {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      const std::string said = join(directory, rank, size, timeout, key);
      const ssize_t written = ::write(ends[1], said.data(), said.size());
      ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    said_ = ends[0];
  }
  Rank(Rank&& other) noexcept : process_(std::exchange(other.process_, -1)), said_(std::exchange(other.said_, -1)) {}
  Rank& operator=(Rank&&) = delete;
  ~Rank() {
    if (process_ > 0) ::kill(process_, SIGKILL), ::waitpid(process_, nullptr, 0);
    if (said_ >= 0) ::close(said_);
  }

  // What it ends with: "the sum is 3", or its error.
  std::string end() {
    std::string said;
    std::array<char, 1024> bytes{};
    for (ssize_t got = 0; (got = ::read(said_, bytes.data(), bytes.size())) > 0;)
      said.append(bytes.data(), static_cast<std::size_t>(got));
    ::waitpid(std::exchange(process_, -1), nullptr, 0);
    return said;
  }

 private:
  static std::string join(const std::string& directory, int rank, int size, Timeout timeout, const std::string& key) {
    const std::vector<std::string> variables{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
                                             "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29511", "FAIRWAY_JOB_KEY=" + key};
    std::vector<const char*> environment;
    for (const std::string& variable : variables) environment.push_back(variable.c_str());
    environment.push_back(nullptr);
    JobOptions options;
    options.communicator.timeout = timeout;
    options.engine.directory = directory;
    options.engine.transports = {"tcp"};
    options.environment = environment.data();
    auto world = Communicator::join(options);
    if (!world) return world.status().to_string();
    int sum = rank;
    const Status status = world->run(
        {.kind = CollectiveKind::all_reduce, .input = &sum, .output = &sum, .count = 1, .type = DataType::i32});
    return status ? "the sum is " + std::to_string(sum) : status.to_string();
  }

  pid_t process_ = -1;
  int said_ = -1;
};

struct Directory : testing::TestWithParam<std::string> {
  void SetUp() override {
    const bool is_etcd = GetParam() == "etcd";
    if (is_etcd ? !control::EtcdServer::available() : !control::RedisServer::available())
      GTEST_SKIP() << (is_etcd ? "etcd" : "redis-server") << " is not installed";
    const auto probe = Engine::open({.directory = GetParam() + "://127.0.0.1:1", .progress = Progress::caller});
    if (probe.status().code() == ErrorCode::unsupported) GTEST_SKIP() << probe.status().message();
    if (is_etcd)
      store = std::make_unique<Etcd>();
    else
      store = std::make_unique<Redis>();
  }
  std::unique_ptr<Store> store;
};
INSTANTIATE_TEST_SUITE_P(Of, Directory, testing::Values("etcd", "redis"), [](const auto& info) { return info.param; });

TEST_P(Directory, RanksOfSeveralHostsMeetThere) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.emplace_back(store->url(), rank, 3, 60s);
  for (Rank& rank : ranks) EXPECT_EQ(rank.end(), "the sum is 3");
}

// Both ranks are told whom they miss and what is wrong with the directory.
void expect_told(const std::string& said, int missing, const std::string& store) {
  const std::string other = "rank " + std::to_string(missing) + " (world/rank-" + std::to_string(missing) + ")";
  EXPECT_TRUE(said.starts_with("unreachable: ")) << said;
  for (const std::string& words : {other, (store == "etcd" ? "etcd" : "Redis") + std::string(" at 127.0.0.1:"),
                                   std::string("nothing listens on that port")})
    EXPECT_NE(said.find(words), std::string::npos) << said;
}

// Its timeouts are 4 and 2 seconds; the rest is a busy machine's.
TEST_P(Directory, OneThatDiesWhileRanksGatherIsNamedInTime) {
  const auto start = Clock::now();
  Rank early(store->url(), 0, 2, 4s);
  for (int tries = 0; tries < 800 && !store->has_names(); ++tries) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(store->has_names());
  store->kill();
  Rank late(store->url(), 1, 2, 2s);
  expect_told(late.end(), 0, GetParam());
  expect_told(early.end(), 1, GetParam());
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST_P(Directory, OneThatIsNotThereIsNamedInTime) {
  const std::string url = store->url();
  store->kill();
  const auto start = Clock::now();
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.emplace_back(url, rank, 2, 1s);
  for (int rank = 0; rank < 2; ++rank) expect_told(ranks[static_cast<std::size_t>(rank)].end(), 1 - rank, GetParam());
  EXPECT_LT(Clock::now() - start, 6s);
}

}  // namespace
}  // namespace fairway

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mount.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/open_engine.h"

// Memory beyond what a control group allows is an error. The kernel would say nothing and kill.
namespace fairway {
namespace {

using control::ChildProcess;

constexpr std::uint64_t kLimit = 128u << 20;

// A memory control group of a test, of whichever version this kernel has mounted. Removed with its owner.
class Group {
 public:
  Group() {
    const std::string name = "fairway-test-" + std::to_string(::getpid());
    if (std::getenv("FAIRWAY_VM") != nullptr)  // a guest has mounted none
      (void)::mount("none", "/sys/fs/cgroup", "cgroup2", 0, nullptr);
    if (make("/sys/fs/cgroup/memory/" + name, "memory.limit_in_bytes")) return;
    std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+memory" << std::flush;
    if (!make("/sys/fs/cgroup/" + name, "memory.max")) path_.clear();
  }
  ~Group() {
    std::error_code ignored;
    for (int i = 0; i < 100 && !path_.empty() && !std::filesystem::remove(path_, ignored); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // a process that has just ended may still be in it
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Empty: none can be made.
  const std::string& path() const { return path_; }
  void enter() const { std::ofstream(path_ + "/cgroup.procs") << ::getpid() << std::flush; }

 private:
  bool make(const std::string& path, const char* limit) {
    path_ = path;
    std::error_code why;
    if (!std::filesystem::create_directory(path, why)) return false;
    std::ofstream file(path + "/" + limit);
    file << kLimit << std::flush;
    if (file.good()) return true;
    std::filesystem::remove(path, why);
    return false;
  }
  std::string path_;
};

// What a process in the group says of an engine's memory, in the order of asking.
void allocate_what_is_asked(ChildProcess::Line& line, const Group& group) {
  group.enter();
  EngineOptions options;
  options.name = "limited";
  auto engine = open_engine(options);
  if (!engine) return line.write("no engine: " + engine.status().to_string());
  line.write("open");
  for (std::string asked = line.read(); !asked.empty(); asked = line.read()) {
    const auto region = engine->allocate(std::stoull(asked), Access::all);
    if (region) std::memset(region->address, 0x5a, region->size_bytes);  // every page: none ends in SIGBUS
    line.write(region ? "ok" : region.status().to_string());
  }
}

class Limit : public testing::Test {
 protected:
  void SetUp() override {
    if (!group_.path().empty()) return;
    if (std::getenv("FAIRWAY_VM") != nullptr) FAIL() << "a guest's kernel has control groups";
    GTEST_SKIP() << "no memory control group can be made here: that needs root and a writable /sys/fs/cgroup";
  }
  Group group_;
};

TEST_F(Limit, OfAControlGroupIsAnErrorThatNamesItAndWhatFitsStillWorks) {
#ifdef FAIRWAY_SANITIZED
  GTEST_SKIP() << "a sanitizer's own memory counts in the group too";
#endif
  ChildProcess child([&](ChildProcess::Line& line) { allocate_what_is_asked(line, group_); });
  ASSERT_EQ(child.read(), "open");
  const auto ask = [&](std::uint64_t bytes) {
    child.write(std::to_string(bytes));
    const std::string answer = child.read();
    return answer.empty() ? std::string("the process was killed") : answer;
  };
  EXPECT_EQ(ask(kLimit / 4), "ok");
  const std::string refused = ask(2 * kLimit);
  EXPECT_NE(refused.find("resource_exhausted"), std::string::npos) << refused;
  EXPECT_NE(refused.find(group_.path()), std::string::npos) << refused;
  EXPECT_NE(ask(kLimit - kLimit / 8), "ok") << "more than is left beside the first";
  EXPECT_EQ(ask(kLimit / 4), "ok") << "what is refused takes nothing";
}

}  // namespace
}  // namespace fairway

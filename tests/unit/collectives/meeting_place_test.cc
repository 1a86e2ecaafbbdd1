#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/job/launcher.h"
#include "sys/own_folder.h"

// The folder in which ranks of one host meet.
namespace fairway::collectives {
namespace {

namespace fs = std::filesystem;

class Meeting : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "fairway-meeting-XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    base_ = made;
  }
  void TearDown() override { fs::remove_all(base_); }

  MeetingPlace place(int rank, const std::string& job = "a job",
                     std::chrono::milliseconds within = std::chrono::seconds(10), std::stop_token stop = {},
                     int size = 4) {
    auto opened = MeetingPlace::open(job, rank, size, Clock::now() + within, std::move(stop), base_);
    EXPECT_TRUE(opened) << opened.status().to_string();
    return *opened;
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text << '\n'; }

  fs::path base_;
};

TEST_F(Meeting, RanksGetEachOthersAddressesAndOneKey) {
  std::vector<std::string> keys(3);
  std::vector<std::vector<std::string>> addresses(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      MeetingPlace here = place(rank, "a job", std::chrono::seconds(10), {}, 3);
      const Status entered = here.enter();
      ASSERT_TRUE(entered) << entered.to_string();
      const auto at = static_cast<std::size_t>(rank);
      keys[at] = here.key().value();
      addresses[at] = here.exchange("at-" + std::to_string(rank)).value();
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(keys[static_cast<std::size_t>(rank)], keys[0]);
    EXPECT_EQ(addresses[static_cast<std::size_t>(rank)], (std::vector<std::string>{"at-0", "at-1", "at-2"}));
  }
  EXPECT_EQ(keys[0].size(), 32U);
  MeetingPlace first = place(0);
  first.remove();
  EXPECT_FALSE(fs::exists(first.folder()));
}

TEST_F(Meeting, JobsHaveFoldersAndKeysOfTheirOwn) {
  MeetingPlace one = place(0, "one"), other = place(0, "other");
  EXPECT_NE(one.folder(), other.folder());
  ASSERT_TRUE(one.enter());
  ASSERT_TRUE(other.enter());
  EXPECT_NE(one.key().value(), other.key().value());
}

TEST_F(Meeting, ASecondProcessOfOneRankIsTold) {
  ASSERT_TRUE(place(1).enter());
  const Status second = place(1).enter();
  EXPECT_EQ(second.code(), ErrorCode::already_exists);
  EXPECT_EQ(second.message(), "process " + std::to_string(::getpid()) +
                                  " is rank 1 of this job: give each of several jobs at a time another FAIRWAY_JOB");
  place(1).leave();
  EXPECT_TRUE(place(1).enter());
}

TEST_F(Meeting, WhatTheDeadLeftIsClearedAway) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int rank : {0, 2}) {
      MeetingPlace here = place(rank);
      if (!here.enter()) ::_exit(1);
      write(here.folder() / ("rank-" + std::to_string(rank)), "an old address");
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  MeetingPlace here = place(1, "a job", std::chrono::milliseconds(50));
  EXPECT_TRUE(fs::exists(here.folder() / "key"));
  // A process of that id lives, but it is another one.
  write(here.folder() / "process-3", std::to_string(::getpid()) + " 1");
  write(here.folder() / "process-4", "nonsense");
  write(here.folder() / "rank-3", "an old address");
  ASSERT_TRUE(here.enter());
  for (const char* name : {"key", "process-0", "process-2", "process-3", "process-4", "rank-0", "rank-2", "rank-3"})
    EXPECT_FALSE(fs::exists(here.folder() / name)) << name;
  const auto key = here.key();  // of the dead: it is nobody's
  EXPECT_EQ(key.status().code(), ErrorCode::timed_out);
  EXPECT_NE(key.status().message().find("rank 0 has left no key in"), std::string::npos);
}

TEST_F(Meeting, AFolderThatOthersMayOpenIsRefused) {
  const fs::path own = base_ / ("fairway-" + std::to_string(::geteuid()));
  ASSERT_EQ(::mkdir(own.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(own.c_str(), 0755), 0);
  auto opened = MeetingPlace::open("a job", 0, 1, Clock::now(), {}, base_);
  EXPECT_EQ(opened.status().code(), ErrorCode::access_denied);
  EXPECT_EQ(opened.status().message(), own.string() + " is not this user's alone: remove it");
  fs::remove(own);
  fs::create_directory(base_ / "elsewhere");
  fs::create_directory_symlink(base_ / "elsewhere", own);
  opened = MeetingPlace::open("a job", 0, 1, Clock::now(), {}, base_);
  EXPECT_EQ(opened.status().code(), ErrorCode::access_denied);
  EXPECT_EQ(MeetingPlace::open("a job", 0, 1, Clock::now(), {}, base_ / "absent").status().code(),
            ErrorCode::system_error);
}

// A folder that another user has made under this user's name keeps nobody from meeting.
TEST_F(Meeting, AnotherUsersFolderIsPassedOver) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make a folder of another user";
  const fs::path taken = base_ / "fairway-0";
  ASSERT_EQ(::mkdir(taken.c_str(), 0700), 0);
  ASSERT_EQ(::chown(taken.c_str(), 12345, 12345), 0);
  EXPECT_EQ(sys::foreign_folders(base_), std::vector<fs::path>{taken});
  MeetingPlace one = place(0), other = place(1);
  EXPECT_EQ(one.folder().parent_path(), base_ / "fairway-0-1");
  EXPECT_EQ(one.folder(), other.folder());
  ASSERT_TRUE(one.enter());
  ASSERT_TRUE(other.enter());
  EXPECT_EQ(one.key().value(), other.key().value());
  EXPECT_EQ(sys::own_folders(base_), std::vector<fs::path>{base_ / "fairway-0-1"});
}

// Numbers of processes mean others there: the rank that lives is not cleared away, and one that died is.
TEST_F(Meeting, RanksOfOtherPidNamespacesLiveAsLongAsTheyHoldTheirFile) {
  MeetingPlace first = place(0);
  ASSERT_TRUE(first.enter());
  const fs::path file = first.folder() / "process-0";
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  const std::string own = std::to_string(process_namespace());
  ASSERT_NE(line.find(" " + own + " "), std::string::npos) << line;
  line.replace(line.find(" " + own + " "), own.size() + 2, " 1 ");  // of another one, with a number that is nobody's
  line.replace(0, line.find(' '), "2147483647");
  write(file, line);
  ASSERT_TRUE(place(1).enter());
  EXPECT_TRUE(fs::exists(file));
  EXPECT_TRUE(fs::exists(first.folder() / "key"));
  EXPECT_EQ(place(0).enter().code(), ErrorCode::already_exists);
  { const MeetingPlace gone = std::move(first); }
  ASSERT_TRUE(place(2).enter());
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(Meeting, JobsOfOneNameAndOtherSizesAreTold) {
  ASSERT_TRUE(place(1).enter());
  const Status other = place(0, "a job", std::chrono::seconds(10), {}, 2).enter();
  EXPECT_EQ(other.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(other.message(), "process " + std::to_string(::getpid()) +
                                 ", rank 1 of this job, says that it has 4 ranks, and this process says 2: give all "
                                 "the same number, and each of several jobs at a time another FAIRWAY_JOB");
}

TEST_F(Meeting, WhatKilledJobsLeftLongAgoIsRemoved) {
  MeetingPlace here = place(0), live = place(0, "one that lives"), fresh = place(0, "one of now");
  for (const MeetingPlace* one : {&here, &fresh}) fs::create_directory(one->folder());
  ASSERT_TRUE(live.enter());
  write(fresh.folder() / "process-0", "1 1 1 1");
  const fs::path old = here.folder().parent_path() / "job-old";
  fs::create_directory(old);
  for (const char* name : {"process-0", "key", "rank-0", "lock"}) write(old / name, "1 1 1 1");
  for (const fs::path& one : {old, live.folder()})
    fs::last_write_time(one, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(here.enter());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(live.folder() / "process-0"));
  EXPECT_TRUE(fs::exists(fresh.folder() / "process-0"));
}

TEST_F(Meeting, WhatCannotBeWrittenIsToldWithTheSystemsWords) {
  MeetingPlace here = place(1);
  ASSERT_TRUE(here.enter());
  fs::create_directory(here.folder() / ".rank-1.new");
  EXPECT_NE(here.exchange("here").status().message().find(".rank-1.new: Is a directory"), std::string::npos)
      << here.exchange("here").status().to_string();
}

TEST_F(Meeting, EveryWaitEndsWhenItIsToldTo) {
  std::stop_source stop;
  MeetingPlace one = place(1, "a job", std::chrono::minutes(10), stop.get_token());
  ASSERT_TRUE(one.enter());
  std::thread later([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    stop.request_stop();
  });
  EXPECT_EQ(one.key().status().code(), ErrorCode::cancelled);
  later.join();
  EXPECT_EQ(one.exchange("here").status().code(), ErrorCode::cancelled);
  one.leave();
  EXPECT_FALSE(fs::exists(one.folder() / "process-1"));
  EXPECT_FALSE(fs::exists(one.folder() / "rank-1"));
}

TEST_F(Meeting, AbsentRanksAreNamed) {
  MeetingPlace here = place(0, "a job", std::chrono::milliseconds(50));
  ASSERT_TRUE(here.enter());
  const auto addresses = here.exchange("here");
  EXPECT_EQ(addresses.status().code(), ErrorCode::timed_out);
  EXPECT_NE(addresses.status().message().find("ranks: 1, 2, 3"), std::string::npos) << addresses.status().to_string();
}

}  // namespace
}  // namespace fairway::collectives

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "collectives/host/ways.h"
#include "process/collectives/group.h"

// Communicator::measure(): who is the fastest is kept, and communicators of the same shape take it.
namespace fairway {
namespace {

constexpr std::size_t kMost = 2048;

class Measured : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / "fairway-measured-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    const char* const before = std::getenv("XDG_CACHE_HOME");
    before_ = before == nullptr ? "" : before;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty())
      ::unsetenv("XDG_CACHE_HOME");
    else
      ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  static GroupOptions three(const char* transport = "shm") {
    GroupOptions options;
    options.size = 3;
    options.transports = {transport};
    return options;
  }
  static Collective sum(std::size_t bytes) {
    return {.kind = CollectiveKind::all_reduce, .count = bytes / 4, .type = DataType::f32};
  }
  // The only file there.
  [[nodiscard]] std::string file() const {
    std::string found;
    for (const auto& one : std::filesystem::directory_iterator(folder_ + "/fairway")) {
      EXPECT_EQ(found, "");
      found = one.path().string();
    }
    return found;
  }
  static std::string read(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  static std::string key_in(const std::string& text) {
    const std::size_t at = text.find("\nkey ") + 5;
    return text.substr(at, text.find('\n', at) - at);
  }
  static void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

  // A table in which ring, of all, is the fastest at 32 bytes.
  void make_table() {
    run_group(three(), [](Engine&, Communicator& group) {
      const auto text = group.measure(32);
      ASSERT_TRUE(text) << text.status().to_string();
    });
    const std::string text = read(file()), key = key_in(text);
    auto table = collectives::HostTable::parse(text, key);
    ASSERT_TRUE(table) << table.status().to_string();
    collectives::HostTable made(table->over());
    made.add({CollectiveKind::all_reduce, 32, {{Algorithm::one_shot, 700}, {Algorithm::ring, 300}}});
    write(file(), made.text(key));
  }
  // What every rank takes for 32 bytes, and how rank 0 explains it.
  static Algorithm taken(const GroupOptions& options, std::string& why) {
    std::atomic<int> found{-1};
    run_group(options, [&](Engine&, Communicator& group) {
      const int mine = static_cast<int>(group.chosen(sum(32)));
      if (group.rank() == 0) why = group.explain(sum(32));
      EXPECT_TRUE(found.exchange(mine) == mine || mine == found) << "ranks differ";
      float values[8] = {1, 2}, sums[8] = {};
      Collective call = sum(32);
      call.input = values;
      call.output = sums;
      const Status status = group.run(call);
      EXPECT_TRUE(status) << status.to_string();
      EXPECT_EQ(sums[1], 2.0F * static_cast<float>(group.size()));
    });
    return static_cast<Algorithm>(found.load());
  }

  std::string folder_, before_;
};

TEST_F(Measured, KeepsWhoIsTheFastestAndTakesIt) {
  run_group(three(), [](Engine&, Communicator& group) {
    const auto text = group.measure(kMost, true);
    ASSERT_TRUE(text) << text.status().to_string();
    EXPECT_NE(text->find("all_reduce"), std::string::npos) << *text;
    EXPECT_EQ(text->find("kept in ") != std::string::npos, group.rank() == 0) << *text;
    EXPECT_NE(text->find("it/best"), std::string::npos) << *text;
  });
  const std::string text = read(file());
  const auto table = collectives::HostTable::parse(text, key_in(text));
  ASSERT_TRUE(table) << table.status().to_string();
  // Six kinds at 8, 32, 128, 512 and 2048 bytes, each algorithm of each.
  EXPECT_EQ(table->rows().size(), 30U) << text;
  const auto fastest = table->fastest();
  run_group(three(), [&](Engine&, Communicator& group) {
    for (const collectives::HostRow& row : table->rows()) {
      const std::uint64_t blocks = row.kind == CollectiveKind::all_gather ||
                                           row.kind == CollectiveKind::reduce_scatter ||
                                           row.kind == CollectiveKind::all_to_all
                                       ? 3
                                       : 1;
      const Collective call{.kind = row.kind, .count = row.bytes / blocks, .type = DataType::u8};
      EXPECT_EQ(group.chosen(call), fastest.at(row.kind, row.bytes / blocks * blocks)) << to_string(row.kind);
    }
  });
}

TEST_F(Measured, ItsTableIsTakenByCommunicatorsOfThatShapeAlone) {
  make_table();
  std::string why;
  EXPECT_EQ(taken(three(), why), Algorithm::ring) << why;
  EXPECT_NE(why.find("by ring: 32 bytes take one_shot 0.70 us, ring 0.30 us (" + file() + ")"), std::string::npos)
      << why;
  GroupOptions other = three();
  other.size = 2;
  EXPECT_NE(taken(other, why), Algorithm::ring) << why;
  EXPECT_NE(taken(three("tcp"), why), Algorithm::ring) << why;
  EXPECT_NE(why.find("there is no table of this machine"), std::string::npos) << why;
  run_group(three(), [](Engine&, Communicator& group) {
    EXPECT_NE(
        group.chosen({.kind = CollectiveKind::all_reduce, .count = 8, .type = DataType::f32, .reproducible = true}),
        Algorithm::ring);
    Collective named = sum(32);
    named.algorithm = Algorithm::one_shot;
    EXPECT_EQ(group.chosen(named), Algorithm::one_shot);
    auto half = group.split(group.rank() == 2 ? -1 : 0);
    if (half) EXPECT_NE(half->chosen(sum(32)), Algorithm::ring);
  });
}

TEST_F(Measured, WhatCannotBeUsedIsIgnoredWithAReason) {
  make_table();
  const std::string path = file(), good = read(path);
  std::string why;
  const auto ignored = [&](const std::string& because) {
    EXPECT_NE(taken(three(), why), Algorithm::ring) << why;
    EXPECT_NE(why.find(because), std::string::npos) << why;
  };
  write(path, good.substr(0, good.size() / 2));
  ignored("cut or damaged");
  write(path, "something else\n");
  ignored("no such table");
  std::string old = good;
  old.replace(old.find("format 1"), 8, "format 0");
  write(path, old);
  ignored("another format");
  write(path, good);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  ignored("others than this user can write it");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(taken(three(), why), Algorithm::ring) << why;
  collectives::HostTable elsewhere(0);  // over the network
  elsewhere.add({CollectiveKind::all_reduce, 32, {{Algorithm::ring, 1}}});
  write(path, elsewhere.text(key_in(good)));
  ignored("over other links");
  std::filesystem::remove(path);
  ignored("there is no table of this machine");
}

TEST_F(Measured, WhereItCannotBeKeptEveryRankSaysSo) {
  std::filesystem::remove_all(folder_);
  write(folder_, "a file where the folder would be");
  run_group(three(), [](Engine&, Communicator& group) {
    const auto text = group.measure(8);
    ASSERT_FALSE(text);
    EXPECT_NE(text.status().message().find("making "), std::string::npos) << text.status().to_string();
    EXPECT_TRUE(group.run({}));
  });
}

TEST_F(Measured, OneRankHasNothingToMeasure) {
  GroupOptions alone = three();
  alone.size = 1;
  run_group(alone, [](Engine&, Communicator& group) {
    EXPECT_EQ(group.measure().status().code(), ErrorCode::unsupported);
    EXPECT_NE(group.explain(sum(32)).find("all_reduce of 32 bytes: "), std::string::npos) << group.explain(sum(32));
  });
}

}  // namespace
}  // namespace fairway

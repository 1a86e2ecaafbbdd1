#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "process/tool/ran.h"
#include "support/sanitized.h"

// `fairway soak collectives`: ranks killed, stopped, left out and replaced under operations whose every byte is
// compared.
namespace {

using ran::fairway;  // a namespace, too
using ran::Ran;
using ran::refuses;

class SoakCollectives : public testing::Test {
 protected:
  ~SoakCollectives() override {
    std::error_code none;
    std::filesystem::remove(file_, none);
  }
  // How often it happened, as the table says: the word behind the name.
  static int happened(const std::string& table, const std::string& what) {
    const std::size_t at = table.find("\n" + what + " ");
    return at == std::string::npos ? -1 : std::atoi(table.c_str() + at + 1 + what.size());
  }
  const std::string file_ = "/tmp/fairway-soak-collectives-" + std::to_string(::getpid());
};

TEST_F(SoakCollectives, NoValueIsWrongWhateverHappensToRanks) {
  const Ran ran = fairway("soak collectives --seed 3 --ranks 5 --rounds 600 --seconds 60");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_NE(ran.out.find("\n600 rounds of 3 lives in "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("every byte was right"), std::string::npos) << ran.out;
  for (const char* kind : {"barrier", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter",
                           "reduce_scatter", "all_to_all", "all_to_allv"})
    EXPECT_GT(happened(ran.out, kind), 0) << kind << "\n" << ran.out;
  for (const char* what : {"split", "frozen", "killed", "left out", "grown"})
    EXPECT_GT(happened(ran.out, what), 0) << what << "\n" << ran.out;
}

TEST_F(SoakCollectives, GoesOnFromItsStateAndTakesNoOther) {
  const std::string state = "--state " + file_;
  const Ran first = fairway("soak collectives --seed 4 --ranks 2 --rounds 1 " + state);
  EXPECT_NE(first.out.find("\n200 rounds of 1 lives in "), std::string::npos) << first.out;
  const Ran second = fairway("soak collectives --seed 4 --ranks 2 --rounds 1 " + state);
  EXPECT_NE(second.out.find("\n400 rounds of 2 lives in "), std::string::npos) << second.out;
  const Ran other = fairway("soak collectives --seed 5 --ranks 2 --rounds 1 " + state);
  EXPECT_EQ(other.exit, 1);
  EXPECT_NE(other.out.find("is of another soak: go on with --seed 4 --ranks 2"), std::string::npos) << other.out;
  std::ofstream(file_) << "something else\n";
  const Ran none = fairway("soak collectives --seed 4 --ranks 2 --rounds 1 " + state);
  EXPECT_EQ(none.exit, 1);
  EXPECT_NE(none.out.find("it is not what `fairway soak collectives --state` wrote"), std::string::npos) << none.out;
}

TEST_F(SoakCollectives, RefusesWhatItCannotDo) {
  refuses("soak collectives --ranks 0", "--ranks", 2);
  refuses("soak collectives --ranks 18", "--ranks", 2);
  refuses("soak collectives --rounds 0", "--rounds", 2);
  refuses("soak collectives --largest 3Q", "3Q", 2);
  refuses("soak collectives --via rdma", "rdma", 2);
  refuses("soak collectives --life 3 --state " + file_, "--life shows one life again", 2);
  refuses("soak collectives --rounds 1 --state /nonexistent/x", "/nonexistent/x", 1);
}

// The whole of what docs/soak.md promises. A sanitizer, with which a round takes three times as long, sees in a tenth
// of them what it sees in all.
TEST_F(SoakCollectives, HoldsForAHundredThousandRounds) {
  const std::string rounds = fairway::kSanitized ? "10000" : "100000", lives = fairway::kSanitized ? "50" : "500";
  const Ran ran = fairway("soak collectives --seed 21 --rounds " + rounds + " --seconds 7000", "");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_NE(ran.out.find("\n" + rounds + " rounds of " + lives + " lives in "), std::string::npos) << ran.out;
}

}  // namespace

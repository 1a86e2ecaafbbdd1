// The pictures of docs/collective-algorithms.md are what the tool draws.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace fairway {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int exit = -1;
  std::string output;  // of both streams
};

Outcome run_sim(const std::string& arguments) {
  Outcome outcome;
  FILE* pipe = popen(("'" FAIRWAY_TOOL "' sim " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer{};
  for (std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe); got > 0;
       got = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), got);
  const int state = pclose(pipe);
  outcome.exit = WIFEXITED(state) ? WEXITSTATUS(state) : 128;
  return outcome;
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::map<std::string, std::string> pictures_in(const fs::path& folder) {
  std::map<std::string, std::string> pictures;
  for (const auto& entry : fs::directory_iterator(folder))
    pictures[entry.path().filename().string()] = text_of(entry.path());
  return pictures;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// A folder of its own, that goes with the test.
class Pictures : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fairway-pictures-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  [[nodiscard]] std::string into() const { return " --svg '" + folder_.string() + "'"; }
  fs::path folder_;
};

TEST_F(Pictures, OfTheDocumentAreWhatTheToolDraws) {
  for (const char* command : {"--collectives 4", "--collectives 4 --per-host 2 --only hierarchical"}) {
    const Outcome drawn = run_sim(command + into());
    ASSERT_EQ(drawn.exit, 0) << drawn.output;
  }
  const auto drawn = pictures_in(folder_), kept = pictures_in(FAIRWAY_SOURCE_DIR "/docs/images/collectives");
  EXPECT_GE(drawn.size(), 18U);
  const std::string page = text_of(FAIRWAY_SOURCE_DIR "/docs/collective-algorithms.md");
  for (const auto& [name, picture] : drawn) {
    ASSERT_TRUE(kept.contains(name)) << "docs/images/collectives lacks " << name;
    EXPECT_TRUE(picture == kept.at(name)) << name << ": draw it again, as docs/collective-algorithms.md says";
    EXPECT_NE(page.find("images/collectives/" + name), std::string::npos) << "the page does not show " << name;
  }
  for (const auto& [name, picture] : kept) EXPECT_TRUE(drawn.contains(name)) << name << " is no longer drawn";
}

TEST_F(Pictures, HaveALineForEachMessage) {
  const Outcome drawn = run_sim("--collectives 8 --only all_reduce" + into());
  ASSERT_EQ(drawn.exit, 0) << drawn.output;
  for (const auto& [name, picture] : pictures_in(folder_)) {
    const std::size_t lines = count_of(picture, "<title>rank ");
    EXPECT_NE(drawn.output.find(name + ": " + std::to_string(lines) + " messages\n"), std::string::npos)
        << name << ": " << lines << " lines\n"
        << drawn.output;
    EXPECT_TRUE(picture.starts_with("<?xml")) << name;
    EXPECT_TRUE(picture.ends_with("</svg>\n")) << name;
    EXPECT_EQ(count_of(picture, "<path"), count_of(picture, "<path class=")) << name;
  }
}

TEST_F(Pictures, ThatCannotBeDrawnAreErrorsThatSayWhy) {
  const std::pair<std::string, std::string> wrong[] = {
      {"--collectives 9" + into(), "--svg draws one number of ranks, 2 to 8"},
      {"--collectives 4,8" + into(), "--svg draws one number of ranks, 2 to 8"},
      {"--svg /tmp", "--svg requires --collectives"},
      {"--collectives 4 --slot-bytes 64" + into(), "--svg excludes --slot-bytes"},
      {"--collectives 4 --most-bytes 64" + into(), "--svg excludes --most-bytes"},
      {"--collectives 4 --trace" + into(), "--trace excludes --svg"},
      {"--collectives 4 --svg ''", "--svg: the name is empty"},
      {"--collectives 4 --only hierarchical" + into(), "`hierarchical` needs --per-host"},
      {"--collectives 4 --per-host 4 --only hierarchical" + into(), "`hierarchical` needs --per-host"},
  };
  for (const auto& [arguments, words] : wrong) {
    const Outcome outcome = run_sim(arguments);
    EXPECT_EQ(outcome.exit, 2) << arguments << ": " << outcome.output;
    EXPECT_NE(outcome.output.find(words), std::string::npos) << arguments << ": " << outcome.output;
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  const Outcome nowhere = run_sim("--collectives 4 --svg '" + folder_.string() + "/no/such'");
  EXPECT_EQ(nowhere.exit, 1) << nowhere.output;
  EXPECT_NE(nowhere.output.find("--svg takes a folder that is there"), std::string::npos) << nowhere.output;
  EXPECT_NE(nowhere.output.find("/no/such"), std::string::npos) << nowhere.output;
}

}  // namespace
}  // namespace fairway

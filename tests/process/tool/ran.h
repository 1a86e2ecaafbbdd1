#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

// The tool, run as a user types it.
namespace ran {

struct Ran {
  int exit = -1;
  std::string out;  // and what it said on stderr
};

// `before`: words in front of it, as a shell takes them.
inline Ran fairway(const std::string& arguments, const std::string& before = "timeout 250 ") {
  Ran ran;
  FILE* pipe = ::popen((before + FAIRWAY_TOOL + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    ran.out.append(part.data(), got);
  const int status = ::pclose(pipe);
  ran.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

inline std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// Ends with that code and one line, which names what is wrong.
inline void refuses(const std::string& arguments, const std::string& word, int exit) {
  const Ran ran = fairway(arguments);
  EXPECT_EQ(ran.exit, exit) << arguments << ": " << ran.out;
  EXPECT_NE(ran.out.find(word), std::string::npos) << arguments << ": " << ran.out;
  EXPECT_EQ(count(ran.out, "\n"), 1u) << arguments << ": " << ran.out;
}

}  // namespace ran

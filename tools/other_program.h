#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

// Programs of other packages, and this one once more, run to measure: their words, their end and what they print.
namespace fairway::tool {

// A file without a name, which a program writes into and which is read when that has ended. A resource.
class Kept {
 public:
  Kept();
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  [[nodiscard]] int number() const { return number_; }  // of its descriptor; below 0: the system has none
  [[nodiscard]] std::string text() const;

 private:
  int number_;
};

struct Ran {
  bool well = false;  // it ended by itself, with 0
  std::string out, err;
};
// Runs it to its end. `words`: the program, by a path or as found on PATH, and its arguments. timed_out: it took longer
// and was ended.
Result<Ran> run_program(const std::vector<std::string>& words, int seconds);

// A program that serves until this object ends, and no longer than a minute, should that not come to it. A resource.
class ServerProgram {
 public:
  explicit ServerProgram(std::vector<std::string> words);
  ~ServerProgram();
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;

  // Until something listens at that TCP port of this machine. An error: the program ended before, or ten seconds went
  // by.
  Status await(int port);
  [[nodiscard]] std::string said() const { return kept_.text(); }  // on both of its outputs

 private:
  Kept kept_;
  pid_t pid_ = -1;
};

bool on_path(const std::string& program);
// A TCP port of this machine at which nothing listened just now.
int free_port();

}  // namespace fairway::tool

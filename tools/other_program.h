#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

// Runs programs of other packages, and this one, to measure: arguments, exit and output.
namespace fairway::tool {

// An unnamed file for a program's output, read when the program has ended. A resource.
class Kept {
 public:
  Kept();
  ~Kept();
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  [[nodiscard]] int number() const { return number_; }  // of its descriptor; below 0: it could not be opened
  [[nodiscard]] std::string text() const;

 private:
  int number_;
};

struct Ran {
  bool well = false;  // it exited with 0
  std::string out, err;
};
// Runs a program to its end. `words`: the program, by path or from PATH, and its arguments. timed_out: it took longer
// and was ended.
Result<Ran> run_program(const std::vector<std::string>& words, int seconds);

// A server that runs until this object ends, at most a minute. A resource.
class ServerProgram {
 public:
  explicit ServerProgram(std::vector<std::string> words);
  ~ServerProgram();
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;

  // Waits until something listens at that TCP port of this machine. An error: the program ended, or ten seconds passed.
  Status await(int port);
  [[nodiscard]] std::string said() const { return kept_.text(); }  // standard output and error

 private:
  Kept kept_;
  pid_t pid_ = -1;
};

bool on_path(const std::string& program);
// A free TCP port of this machine, for the moment.
int free_port();

}  // namespace fairway::tool

#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

namespace fairway::tool {

// The first line of such a process if it failed, with the reason behind it: its starter then prints the error.
inline constexpr std::string_view kCannot = "cannot: ";

// This program as another process, which ends when its standard input closes, and at the latest with this object. A
// resource.
class OtherProcess {
 public:
  OtherProcess() = default;
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  // Runs `fairway <arguments>` and reads its first line; an error if that begins with kCannot.
  Result<std::string> start(const std::vector<std::string>& arguments);
  // Writes to its standard input, and reads the next line of its standard output. If it ended the error says how;
  // timed_out: no line in that time.
  Status say(std::string_view words) const;
  Result<std::string> hear(std::chrono::milliseconds timeout);
  [[nodiscard]] pid_t id() const { return pid_; }
  void signal(int number) const;
  void kill();
  [[nodiscard]] int output() const { return stdout_; }  // the descriptor that hear() reads
  void close_input();                                   // it may end; does not wait for it
  void end();
  void end_by(std::chrono::milliseconds patience);  // kills it if it has not ended then

 private:
  pid_t pid_ = -1;
  int stdin_ = -1, stdout_ = -1;
  std::string heard_;  // read, but not returned yet
};

// In such a process: returns when its standard input closes.
void wait_for_end_of_input();

}  // namespace fairway::tool

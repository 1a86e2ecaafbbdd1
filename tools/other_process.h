#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "fairway/status.h"

namespace fairway::tool {

// What such a process says first in place of what it was asked for, with the reason behind it: so its starter is the
// one who tells, in one line.
inline constexpr std::string_view kCannot = "cannot: ";

// This program once more, as another process that ends when its standard input does, and at the latest with this
// object. A resource.
class OtherProcess {
 public:
  OtherProcess() = default;
  ~OtherProcess() { end(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  // Runs `fairway <arguments>` and reads the first line that it prints; an error when that begins with kCannot.
  Result<std::string> start(const std::vector<std::string>& arguments);
  // Words for its standard input, and the next line of its standard output. Its end is an error that says how it ended;
  // timed_out: it said nothing for so long.
  Status say(std::string_view words) const;
  Result<std::string> hear(std::chrono::milliseconds patience);
  [[nodiscard]] pid_t id() const { return pid_; }
  void signal(int number) const;
  void kill();
  void end();

 private:
  pid_t pid_ = -1;
  int stdin_ = -1, stdout_ = -1;
  std::string heard_;  // and not yet asked for
};

// What such a process does last: returns when its starter lets go of it.
void wait_for_end_of_input();

}  // namespace fairway::tool

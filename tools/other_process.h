#pragma once

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
  void signal(int number) const;
  void kill();
  void end();

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
};

// What such a process does last: returns when its starter lets go of it.
void wait_for_end_of_input();

}  // namespace fairway::tool

#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace fairway {

// A program that a test has started; what it prints goes to a file. A resource: its process ends with it.
class Started {
 public:
  // In an environment without any launcher's variables but `variables`.
  Started(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables);
  Started(Started&& other) noexcept;
  Started& operator=(Started&&) = delete;
  ~Started();

  struct End {
    int status = -1;  // its exit status; -1: a signal ended it, or it did not end in time and was killed
    std::string said;
  };
  End end(std::chrono::seconds within = std::chrono::seconds(50));
  void kill();
  [[nodiscard]] pid_t process() const { return process_; }

 private:
  pid_t process_ = -1;
  std::string file_;
};

// Where that program is, as a shell finds it; empty: it is not installed.
std::string installed(const std::string& program);

}  // namespace fairway

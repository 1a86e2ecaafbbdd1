#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "fairway/status.h"

// What every kind of bench shares: rows as JSON and CSV, what is being done.
namespace fairway::tool {
class Tool;
enum class Exit : std::uint8_t;
}  // namespace fairway::tool

namespace fairway::tool::bench {

struct Field {
  const char* name;
  std::string value;
  bool text = false;
};
using Fields = std::vector<Field>;  // of one row

// A document of that format, version 1, with the command, the date and the machine.
std::string json_of(const std::string& format, const std::string& command, const std::vector<Fields>& rows);
std::string csv_of(const std::vector<Fields>& rows);

// Writes the files that are wanted, {name, content}; then, where none of them is stdout, prints the text.
Exit tell(Tool& tool, const std::vector<std::pair<std::string, std::string>>& files, const std::string& text);

// What is being done, on a terminal.
class Meter {
 public:
  explicit Meter(bool on) : on_(on) {}
  ~Meter() {
    if (on_) std::fputs("\r\033[K", stderr);
  }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  void operator()(const std::string& what) const {
    if (on_) std::fputs(("\r\033[K" + what + " ").c_str(), stderr);
  }

 private:
  bool on_;
};

}  // namespace fairway::tool::bench

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fairway/status.h"

// What all bench commands share: rows as JSON and CSV, and progress.
namespace fairway::tool {
class Tool;
enum class Exit : std::uint8_t;
}  // namespace fairway::tool

namespace fairway::tool::bench {

struct Field {
  const char* name;
  std::string value;  // empty: unknown, null in JSON
  bool text = false;
};
using Fields = std::vector<Field>;  // of one row

// A document of that format, version 1, with the command, the date and the machine.
// `complete`: no requested row is missing, as after Ctrl-C.
std::string json_of(const std::string& format, const std::string& command, const std::vector<Fields>& rows,
                    bool complete = true);
// A figure for a Field; 0 (unknown) is empty.
std::string known(double value, int digits);
std::string csv_of(const std::vector<Fields>& rows);

// Writes the requested files, {name, content}; prints the text unless one of them is stdout.
Exit tell(Tool& tool, const std::vector<std::pair<std::string, std::string>>& files, const std::string& text);

// Progress: the current step, how many are done, and the time left. One line on stderr, updated in place on a terminal;
// elsewhere a line for each step with --progress, else silent.
class Meter {
 public:
  Meter() = default;  // silent
  Meter(const Tool& tool, bool asked);
  ~Meter() { clear(); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void expect(std::size_t rows) { all_ += rows; }  // so many calls
  void operator()(const std::string& what);        // the next one begins
  void clear() const;                              // before something else is printed on the same terminal

 private:
  bool terminal_ = false, on_ = false;
  std::size_t all_ = 0, begun_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fairway::tool::bench

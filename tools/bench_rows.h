#pragma once

#include <chrono>
#include <cstdint>
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
  std::string value;  // empty: not known, which is null in JSON
  bool text = false;
};
using Fields = std::vector<Field>;  // of one row

// A document of that format, version 1, with the command, the date and the machine.
// `complete`: nothing that was asked for is missing, as it is after Ctrl-C.
std::string json_of(const std::string& format, const std::string& command, const std::vector<Fields>& rows,
                    bool complete = true);
// A figure for a Field; a zero that stands for "not known" is empty.
std::string known(double value, int digits);
std::string csv_of(const std::vector<Fields>& rows);

// Writes the files that are wanted, {name, content}; then, where none of them is stdout, prints the text.
Exit tell(Tool& tool, const std::vector<std::pair<std::string, std::string>>& files, const std::string& text);

// What is being done, how much of it, and for how long still: one line on stderr that is written over on a terminal, a
// line each with --progress elsewhere. Otherwise silent.
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

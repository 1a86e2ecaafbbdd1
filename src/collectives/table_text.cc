#include "collectives/table_text.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace fairway::collectives {
namespace {

std::string first_line(std::string_view what, int format) {
  return fmt::format("{}, format {}\n", what, format);
}

std::string last_line(std::string_view before) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : before) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("end {:016x}\n", hash);
}

}  // namespace

std::string framed(std::string_view what, int format, const std::string& key, const std::string& rows) {
  const std::string out = first_line(what, format) + fmt::format("key {}\n", key) + rows;
  return out + last_line(out);
}

Result<std::vector<std::string>> rows_in(const std::string& text, std::string_view what, int format,
                                         const std::string& key) {
  if (text.rfind(fmt::format("{}, format ", what), 0) != 0) return unusable("it is no such table");
  if (text.rfind(first_line(what, format), 0) != 0) return unusable("it is of another format: measure again");
  const std::size_t end = text.rfind("end ");
  if (end == std::string::npos || text.substr(end) != last_line(std::string_view(text).substr(0, end)))
    return unusable("it is cut or damaged: measure again");
  std::istringstream lines(text.substr(0, end));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  if (line != "key " + key)
    return unusable(fmt::format("it is of another machine or version ({}), and this is {}: measure again",
                                line.substr(std::min<std::size_t>(line.size(), 4)), key));
  std::vector<std::string> rows;
  while (std::getline(lines, line)) rows.push_back(line);
  return rows;
}

}  // namespace fairway::collectives

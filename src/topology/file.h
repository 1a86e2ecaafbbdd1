#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

// Reading of files and directories, bounded, with the system's own text in every error: not_found, access_denied,
// unsupported where sysfs says that an attribute does not apply now, out_of_range beyond a limit, else system_error.
namespace fairway::topology {

// The whole file, at most limit_bytes (out_of_range beyond). Works on /proc and /sys, whose sizes mean nothing.
Result<std::string> read_file(const std::string& path, std::size_t limit_bytes);
// The same of what a user names: pipes too, read to their end, and "-", which is standard input. invalid_argument where
// that has nothing (more).
Result<std::string> read_input(const std::string& path, std::size_t limit_bytes);
std::string input_name(const std::string& path);  // as messages have it
// Names in a directory without "." and "..", sorted; at most limit (out_of_range beyond).
Result<std::vector<std::string>> list_directory(const std::string& path, std::size_t limit);
bool is_directory(const std::string& path);
bool exists(const std::string& path);
// Where a symbolic link points, as written; not_found where the path is none.
Result<std::string> read_link(const std::string& path);

// The part after the last '/'.
std::string_view file_name(std::string_view path);

}  // namespace fairway::topology

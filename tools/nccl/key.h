#pragma once

#include <string>

#include "fairway/status.h"

namespace fairway::tool {

// A new job key: 256 random bits in letters and digits.
Result<std::string> make_key();

// A file that every host of a job reads.
struct KeyFile {
  std::string path;   // absolute
  bool made = false;  // now; else it was there
  bool others_can_read = false;
};
// The absolute path by which ranks are told of it.
std::string key_file_path(const std::string& path);
// Makes it with a new key, readable by its owner alone, if there is none. Of several that do so at once, on one file
// system, one makes the file and all get that one. The error names the file.
Result<KeyFile> need_key_file(const std::string& path);

}  // namespace fairway::tool

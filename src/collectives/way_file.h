#pragma once

#include <string>

#include "fairway/status.h"

// Where a machine's table of ways is kept (way_table.h).
namespace fairway::collectives {

// In $XDG_CACHE_HOME/fairway or ~/.cache/fairway, named after the key. Error: neither variable is set.
Result<std::string> way_file_path(const std::string& key);
// Errors: not_found; access_denied: others could have written it; resource_exhausted: it is too long for a table.
Result<std::string> read_way_file(const std::string& path);
// All of it or nothing; makes the folder. Only this user may write it afterwards.
Status write_way_file(const std::string& path, const std::string& text);

}  // namespace fairway::collectives

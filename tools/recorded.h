#pragma once

#include <string>

#include "fairway/status.h"

namespace fairway::tool {

// --from of commands that open engines, which read a snapshot by its name: a file that is none (a folder, XML, standard
// input, a pipe) becomes one, in memory and for as long as this process. Empty stays empty: this machine.
Result<std::string> snapshot_of(const std::string& from);

}  // namespace fairway::tool

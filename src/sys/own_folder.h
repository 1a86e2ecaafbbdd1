#pragma once

#include <filesystem>
#include <vector>

#include "fairway/status.h"

namespace fairway::sys {

// Folders that only this user can open, for processes of this host: BASE/fairway-UID, and where another user has taken
// that name BASE/fairway-UID-1 and so on. All of the user's processes come to the same one.

// Makes it, or finds it. access_denied: it is open to others, or others have all its names.
Result<std::filesystem::path> make_own_folder(const std::filesystem::path& base);
// Those that are there.
std::vector<std::filesystem::path> own_folders(const std::filesystem::path& base);
// Those of these names that another user has made.
std::vector<std::filesystem::path> foreign_folders(const std::filesystem::path& base);

}  // namespace fairway::sys

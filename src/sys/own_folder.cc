#include "sys/own_folder.h"

#include <cerrno>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/error.h"

namespace fairway::sys {
namespace {

namespace fs = std::filesystem;

constexpr int kNames = 8;

fs::path name_of(const fs::path& base, int number) {
  return base /
         (number == 0 ? fmt::format("fairway-{}", ::geteuid()) : fmt::format("fairway-{}-{}", ::geteuid(), number));
}

enum class Whose { nobodys, own, open, foreign };  // open: this user's, and others may use it

Whose whose(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return Whose::nobodys;
  if (found.st_uid != ::geteuid()) return Whose::foreign;
  return S_ISDIR(found.st_mode) && (found.st_mode & 077) == 0 ? Whose::own : Whose::open;
}

std::vector<fs::path> all_of(const fs::path& base, Whose wanted) {
  std::vector<fs::path> all;
  for (int number = 0; number < kNames; ++number)
    if (fs::path path = name_of(base, number); whose(path) == wanted) all.push_back(std::move(path));
  return all;
}

}  // namespace

Result<fs::path> make_own_folder(const fs::path& base) {
  for (int number = 0; number < kNames; ++number) {
    fs::path path = name_of(base, number);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return system_status(errno, fmt::format("cannot make {}", path.string()));
    const Whose found = whose(path);
    if (found == Whose::own) return path;
    if (found == Whose::open)
      return Status(ErrorCode::access_denied, fmt::format("{} is not this user's alone: remove it", path.string()));
  }
  return Status(ErrorCode::access_denied,
                fmt::format("other users have made {} and all other names of this user's folder: have them removed",
                            name_of(base, 0).string()));
}

std::vector<fs::path> own_folders(const fs::path& base) {
  return all_of(base, Whose::own);
}

std::vector<fs::path> foreign_folders(const fs::path& base) {
  return all_of(base, Whose::foreign);
}

}  // namespace fairway::sys

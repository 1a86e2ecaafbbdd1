#include "collectives/way_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fd.h"

namespace fairway::collectives {
namespace {

constexpr off_t kMostBytes = 256 << 10;

std::string text_of_errno() {
  return std::error_code(errno, std::generic_category()).message();
}

}  // namespace

Result<std::string> way_file_path(const std::string& key) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && *cache == '/')
    folder = cache;
  else if (home != nullptr && *home != '\0')
    folder = std::string(home) + "/.cache";
  else
    return Status(ErrorCode::not_found, "neither XDG_CACHE_HOME nor HOME says where this user's cache is");
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{}/fairway/collectives-{:016x}.txt", folder, hash);
}

Result<std::string> read_way_file(const std::string& path) {
  const sys::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Status(ErrorCode::not_found, fmt::format("{}: {}", path, text_of_errno()));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return Status(ErrorCode::not_found, fmt::format("{}: it is no file", path));
  // Root's may be shared by all users.
  if ((facts.st_uid != ::geteuid() && facts.st_uid != 0) || (facts.st_mode & 022) != 0)
    return Status(ErrorCode::access_denied, fmt::format("{}: others than this user can write it", path));
  if (facts.st_size > kMostBytes)
    return Status(ErrorCode::resource_exhausted, fmt::format("{}: it is too long for a table", path));
  std::string text(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    at += static_cast<std::size_t>(got);
  }
  text.resize(at);
  return text;
}

Status write_way_file(const std::string& path, const std::string& text) {
  const auto failed = [&](const char* what) {
    return Status(ErrorCode::system_error, fmt::format("{} {}: {}", what, path, text_of_errno()));
  };
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::string other = path + ".XXXXXX";
  sys::Fd file(::mkostemp(other.data(), O_CLOEXEC));
  if (!file) return failed("making");
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t put = ::write(file.get(), text.data() + at, text.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    at += static_cast<std::size_t>(put);
  }
  Status status;
  if (at != text.size() || ::fchmod(file.get(), 0644) != 0 || ::fsync(file.get()) != 0) status = failed("writing");
  if (status && ::rename(other.c_str(), path.c_str()) != 0) status = failed("renaming what becomes");
  if (!status) ::unlink(other.c_str());
  return status;
}

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

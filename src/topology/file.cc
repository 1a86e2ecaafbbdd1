#include "topology/file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fairway::topology {
namespace {

Status from_errno(const std::string& path, int error) {
  auto code = ErrorCode::system_error;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::not_found;
  if (error == EACCES || error == EPERM) code = ErrorCode::access_denied;
  // sysfs's error if an attribute does not apply now.
  if (error == EINVAL || error == ENODEV || error == ENXIO || error == EOPNOTSUPP) code = ErrorCode::unsupported;
  return {code, fmt::format("{}: {}", path, std::generic_category().message(error))};
}

// An open file, closed with the scope.
class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

namespace {

Result<std::string> read_all(int fd, const std::string& name, std::size_t limit_bytes) {
  std::string content;
  std::array<char, 16384> buffer;
  for (;;) {
    const auto got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno(name, errno);
    if (got == 0) return content;
    if (content.size() + static_cast<std::size_t>(got) > limit_bytes) {
      return Status(ErrorCode::out_of_range, fmt::format("{}: larger than {} bytes", name, limit_bytes));
    }
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

bool is_pipe(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit_bytes) {
  const OpenFile file(path, O_NONBLOCK);
  if (file.fd() < 0) return from_errno(path, errno);
  struct stat info {};
  // A device or a pipe could block or never end.
  if (::fstat(file.fd(), &info) != 0) return from_errno(path, errno);
  if (!S_ISREG(info.st_mode))
    return Status(ErrorCode::invalid_argument, fmt::format("{}: is not a regular file", path));
  return read_all(file.fd(), path, limit_bytes);
}

Result<std::string> read_input(const std::string& path, std::size_t limit_bytes) {
  const bool piped = path != "-" && is_pipe(path);
  if (path != "-" && !piped) return read_file(path, limit_bytes);
  Result<std::string> content = std::string();
  if (piped) {
    const OpenFile pipe(path, 0);
    content = pipe.fd() < 0 ? Result<std::string>(from_errno(path, errno)) : read_all(pipe.fd(), path, limit_bytes);
  } else {
    content = read_all(STDIN_FILENO, input_name(path), limit_bytes);
  }
  if (content && content->empty())
    return Status(ErrorCode::invalid_argument, input_name(path) + " holds nothing, or was read already");
  return content;
}

std::string input_name(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

Result<std::vector<std::string>> list_directory(const std::string& path, std::size_t limit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return from_errno(path, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const auto* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == limit) {
      return Status(ErrorCode::out_of_range, fmt::format("{}: more than {} entries", path, limit));
    }
    names.emplace_back(name);
  }
  if (errno != 0) return from_errno(path, errno);
  std::ranges::sort(names);
  return names;
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

Result<std::string> read_link(const std::string& path) {
  std::array<char, 4096> buffer;
  const auto length = ::readlink(path.c_str(), buffer.data(), buffer.size());
  if (length < 0)
    return errno == EINVAL ? Status(ErrorCode::not_found, path + ": is no link") : from_errno(path, errno);
  return std::string(buffer.data(), static_cast<std::size_t>(length));
}

std::string_view file_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

}  // namespace fairway::topology

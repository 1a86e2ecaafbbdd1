#include "key.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fairway::tool {
namespace {

Status failed(const std::string& path) {
  return {ErrorCode::system_error, fmt::format("the key file {}: {}", path, std::strerror(errno))};
}

// The whole file under a name of its own, `draft`; nobody reads it before it is complete. `path` is for errors.
Status write_new(const std::string& draft, const std::string& path, const std::string& text) {
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed(path);
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const Status status = written ? Status() : failed(path);
  ::close(fd);
  return status;
}

}  // namespace

Result<std::string> make_key() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Status(ErrorCode::system_error, fmt::format("no random bytes for a job key: {}", std::strerror(errno)));
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string key_file_path(const std::string& path) {
  std::error_code none;
  return std::filesystem::absolute(path, none).lexically_normal().string();
}

Result<KeyFile> need_key_file(const std::string& path) {
  KeyFile file;
  file.path = key_file_path(path);
  struct stat found {};
  if (::stat(file.path.c_str(), &found) != 0) {
    if (errno != ENOENT) return failed(file.path);
    auto key = make_key(), name = make_key();  // a name that no other host takes, and that tells nothing of the key
    if (!key || !name) return key ? name.status() : key.status();
    const std::string draft = fmt::format("{}.{}", file.path, name->substr(0, 16));
    const Status written = write_new(draft, file.path, *key + "\n");
    // A link, unlike a rename, leaves a file that another process has made meanwhile.
    file.made = written && ::link(draft.c_str(), file.path.c_str()) == 0;
    const int why = errno;
    (void)::unlink(draft.c_str());
    if (!written) return written;
    errno = why;
    if ((!file.made && why != EEXIST) || ::stat(file.path.c_str(), &found) != 0) return failed(file.path);
  }
  if (!S_ISREG(found.st_mode))
    return Status(ErrorCode::invalid_argument, fmt::format("the key file {} is not a file", file.path));
  file.others_can_read = (found.st_mode & 077) != 0;
  return file;
}

}  // namespace fairway::tool

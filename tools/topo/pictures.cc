#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "render/layout.h"
#include "render/page.h"
#include "render/svg.h"
#include "topo.h"

extern char** environ;

namespace fairway::tool {
namespace {

constexpr const char* kConverter = "rsvg-convert";

Status system_error(std::string_view what, int error) {
  return {ErrorCode::system_error, fmt::format("{}: {}", what, std::strerror(error))};
}

// A descriptor that is closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  void reset() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  [[nodiscard]] int get() const { return number_; }

 private:
  int number_;
};

struct SpawnActions {
  posix_spawn_file_actions_t actions{};
  SpawnActions() { posix_spawn_file_actions_init(&actions); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions); }
};

// The whole text in a file of memory, to be read from its start: a converter that does not read on cannot block us.
int file_of_memory(std::string_view text) {
  const int file = ::memfd_create("picture", MFD_CLOEXEC);
  while (file >= 0 && !text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      ::close(file);
      errno = error;
      return -1;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (file >= 0) ::lseek(file, 0, SEEK_SET);
  return file;
}

Result<std::string> read_all(int descriptor) {
  std::string out;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(fmt::format("cannot read from {}", kConverter), errno);
    if (got == 0) return out;
    out.append(buffer, static_cast<std::size_t>(got));
  }
}

Result<std::string> convert(const std::string& svg) {
  const Descriptor input(file_of_memory(svg));
  if (input.get() < 0) return system_error("cannot keep the picture in memory", errno);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  const Descriptor output(ends[0]);
  Descriptor far_end(ends[1]);
  SpawnActions spawn;
  posix_spawn_file_actions_adddup2(&spawn.actions, input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&spawn.actions, far_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&spawn.actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string words[] = {kConverter, "--format=png", "--zoom=2"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, kConverter, &spawn.actions, nullptr, arguments, environ);
  if (error == ENOENT) {
    return Status(ErrorCode::unsupported,
                  fmt::format("{} is not installed, so there is no PNG; install librsvg2-bin (Debian) or write --svg",
                              kConverter));
  }
  if (error != 0) return system_error(fmt::format("cannot start {}", kConverter), error);
  far_end.reset();
  Result<std::string> png = read_all(output.get());
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) return system_error(fmt::format("cannot wait for {}", kConverter), errno);
  }
  if (!png || (WIFEXITED(state) && WEXITSTATUS(state) == 0)) return png;
  return Status(ErrorCode::system_error,
                fmt::format("{} could not convert the picture; write --svg instead", kConverter));
}

}  // namespace

Status write_png(const std::string& svg, const std::string& path) {
  const Result<std::string> png = convert(svg);
  return png ? write_file(path, png.value()) : png.status();
}

Status write_pictures(const topology::Fabric& fabric, const render::ExpectRate& expect, const PictureFiles& files) {
  const bool is_one = fabric.machines.size() == 1;
  const topology::Machine* only = is_one ? &fabric.machines[0] : nullptr;
  if (!files.svg.empty() || !files.png.empty()) {
    const render::Scene scene = is_one ? render::picture(*only) : render::picture(fabric);
    render::SvgOptions options;
    options.theme = files.theme == "dark"    ? render::Theme::dark
                    : files.theme == "light" ? render::Theme::light
                                             : render::Theme::automatic;
    if (!files.svg.empty()) {
      Status written = write_file(files.svg, render::svg(scene, options));
      if (!written) return written;
    }
    if (options.theme == render::Theme::automatic) options.theme = render::Theme::light;
    if (!files.png.empty()) {
      Status written = write_png(render::svg(scene, options), files.png);
      if (!written) return written;
    }
  }
  if (files.html.empty()) return Status::ok();
  return write_file(files.html, is_one ? render::page(*only, expect) : render::page(fabric));
}

}  // namespace fairway::tool

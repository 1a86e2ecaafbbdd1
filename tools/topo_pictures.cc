#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
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

// Both ends of a pipe, closed when it goes.
struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read_end >= 0) ::close(read_end);
    read_end = -1;
  }
  void close_write() {
    if (write_end >= 0) ::close(write_end);
    write_end = -1;
  }
};

struct SpawnActions {
  posix_spawn_file_actions_t actions{};
  SpawnActions() { posix_spawn_file_actions_init(&actions); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions); }
};

}  // namespace

Status write_png(const std::string& svg, const std::string& path) {
  Pipe pipe;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe", errno);
  pipe.read_end = ends[0];
  pipe.write_end = ends[1];
  SpawnActions spawn;
  posix_spawn_file_actions_adddup2(&spawn.actions, pipe.read_end, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&spawn.actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // Opened here, so that a file which cannot be written is named with the system's own reason.
  const bool is_stdout = path == "-";
  const int file = is_stdout ? STDOUT_FILENO : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return system_error("cannot write " + path, errno);
  posix_spawn_file_actions_adddup2(&spawn.actions, file, STDOUT_FILENO);
  std::string words[] = {kConverter, "--format=png", "--zoom=2"};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, kConverter, &spawn.actions, nullptr, arguments, environ);
  if (!is_stdout) ::close(file);
  if (error != 0) {
    if (!is_stdout) ::unlink(path.c_str());
    if (error != ENOENT) return system_error(fmt::format("cannot start {}", kConverter), error);
    return {ErrorCode::unsupported,
            fmt::format("{} is not installed, so there is no PNG; install librsvg2-bin (Debian) or write --svg",
                        kConverter)};
  }
  pipe.close_read();
  for (std::string_view rest = svg; !rest.empty();) {
    const ssize_t written = ::write(pipe.write_end, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;  // the converter went away: its exit status says more
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  pipe.close_write();
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) return system_error(fmt::format("cannot wait for {}", kConverter), errno);
  }
  if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return Status::ok();
  return {ErrorCode::system_error,
          fmt::format("{} could not write {}; is the disk full? --svg works without it", kConverter, path)};
}

Status write_pictures(const topology::Fabric& fabric, const PictureFiles& files) {
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
  return write_file(files.html, is_one ? render::page(*only, expect_rates(*only)) : render::page(fabric));
}

}  // namespace fairway::tool

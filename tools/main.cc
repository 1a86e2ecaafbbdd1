// The tool: reads its surroundings once, registers every command, and runs the chosen one.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"

namespace {

fairway::tool::Surroundings look_around() {
  fairway::tool::Surroundings surroundings;
  surroundings.stdout_is_tty = isatty(STDOUT_FILENO) == 1;
  surroundings.stderr_is_tty = isatty(STDERR_FILENO) == 1;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool wants_none = no_colour != nullptr && *no_colour != '\0';
  const bool is_dumb = terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  surroundings.colour = surroundings.stdout_is_tty && !wants_none && !is_dumb;
  winsize size{};
  if (surroundings.stdout_is_tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    surroundings.columns = std::max<std::uint32_t>(size.ws_col, 40);  // narrower ones wrap
  }
  return surroundings;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away (`| head`) is a failed write, not a fatal signal.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    fairway::tool::Tool tool(look_around());
    for (const fairway::tool::AddCommand add : fairway::tool::commands()) add(tool);
    return static_cast<int>(tool.main(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fairway: unexpected: %s; please report it with the command line\n", error.what());
    return static_cast<int>(fairway::tool::Exit::failed);
  }
}

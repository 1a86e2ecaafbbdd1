#include "recorded.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arguments.h"
#include "command.h"
#include "predict/open.h"
#include "topo/topo.h"
#include "topology/load.h"

namespace fairway::tool {

Result<std::string> snapshot_of(const std::string& from) {
  std::error_code ignored;
  const bool file_of_its_own = std::filesystem::is_regular_file(from, ignored);
  if (from.empty() || (file_of_its_own && predict::open_model(from))) return from;  // a calibration may lie beside it
  const auto machine = read_machine_file(from);
  if (!machine) {
    // It named a memory once.
    const bool memory = machine.status().code() == ErrorCode::not_found && memory_name()(from).empty();
    return memory ? Status(ErrorCode::invalid_argument,
                           fmt::format("--from is a recorded machine, and {0} is none: the memory of this process is "
                                       "--local {0}, that of the other --remote",
                                       from))
                  : machine.status();
  }
  const auto text = topology::write_snapshot(*machine, {.keep_identities = true});
  if (!text) return text.status();
  const int kept = ::memfd_create("fairway-machine", MFD_CLOEXEC);  // closed when the process ends
  const std::string path = fmt::format("/proc/self/fd/{}", kept);
  const Status written = kept < 0 ? Status(ErrorCode::system_error, std::strerror(errno)) : write_file(path, *text);
  return written ? Result<std::string>(path) : Status(written).with_context("keeping the machine in memory");
}

}  // namespace fairway::tool

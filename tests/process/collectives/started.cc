#include "process/collectives/started.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" char** environ;  // NOLINT(readability-redundant-declaration)

namespace fairway {
namespace {

bool is_launchers(std::string_view line) {
  for (const std::string_view sign :
       {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "PMIX_", "MPI_", "SLURM_", "TORCHELASTIC_",
        "JOB_COMPLETION_INDEX=", "FAIRWAY_JOB", "FAIRWAY_MASTER"})
    if (line.starts_with(sign)) return true;
  return false;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> made;
  for (std::string& text : texts) made.push_back(text.data());
  made.push_back(nullptr);
  return made;
}

}  // namespace

Started::Started(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables) {
  std::vector<std::string> words = command, environment;
  for (char** line = environ; *line != nullptr; ++line)
    if (!is_launchers(*line)) environment.emplace_back(*line);
  for (const auto& [name, value] : variables) {
    std::string line = name;
    line += "=" + value;
    environment.push_back(std::move(line));
  }
  std::string file = (std::filesystem::temp_directory_path() / "fairway-said-XXXXXX").string();
  const int said = ::mkstemp(file.data());
  if (said < 0) {
    ADD_FAILURE() << "no file for what it says";
    return;
  }
  file_ = file;
  const std::vector<char*> arguments = pointers(words), lines = pointers(environment);
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(said, 1);
    ::dup2(said, 2);
    ::execvpe(arguments[0], arguments.data(), lines.data());
    ::_exit(127);
  }
  ::close(said);
}

Started::Started(Started&& other) noexcept
    : process_(std::exchange(other.process_, -1)), file_(std::exchange(other.file_, {})) {}

Started::~Started() {
  kill();
  if (!file_.empty()) ::unlink(file_.c_str());
}

void Started::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(std::exchange(process_, -1), nullptr, 0);
}

Started::End Started::end(std::chrono::seconds within) {
  End end;
  const auto deadline = std::chrono::steady_clock::now() + within;
  int status = 0;
  while (process_ > 0) {
    if (::waitpid(process_, &status, WNOHANG) == process_) {
      process_ = -1;
      if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      kill();
      end.said = "(did not end) ";
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::ostringstream text;
  text << std::ifstream(file_).rdbuf();
  end.said += text.str();
  return end;
}

std::string installed(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string file = folder + "/" + program; ::access(file.c_str(), X_OK) == 0) return file;
  return "";
}

}  // namespace fairway

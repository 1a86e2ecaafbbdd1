#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "help.h"
#include "rdma_flags.h"

namespace fairway::tool {
namespace {

constexpr std::string_view kAbout =
    "Fairway moves bytes between the memories of an AI cluster along the fastest path that the hardware has. It says "
    "which path it took, what that path should reach, and why it is slow when it is.";

constexpr std::string_view kFooter = R"(Examples:
  fairway topo                     this machine: GPUs, NICs, and what lies between them
  fairway topo --svg machine.svg   the same as a picture
  fairway topo --from host.json    the same of a machine recorded elsewhere
  fairway topo nics --gpu 3        the NICs for a GPU, best first

Exit codes:
  0  done      1  failed, differs, or a finding; stderr gives the reason in one line
  2  invalid command line, or a file that cannot be read      130  interrupted

`fairway help COMMAND` or `fairway COMMAND --help` describes a command, `fairway info` this build.)";

// All of the bytes to a descriptor; 0 or errno.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_and_close(int descriptor, std::string_view bytes) {
  int error = descriptor < 0 ? errno : write_all(descriptor, bytes);
  // A full disk of a network file system shows at close.
  if (descriptor >= 0 && ::close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

// A new file beside it takes its place once it is whole, so that a full disk costs nobody the file that was there. 0
// or errno; none: it is to be written where it is, as it is no regular file (/dev/stdout), has another owner or name,
// or its folder takes no new one.
std::optional<int> replace_file(const std::string& path, std::string_view bytes) {
  struct stat found {};
  const bool is_there = ::stat(path.c_str(), &found) == 0;
  if (is_there && (!S_ISREG(found.st_mode) || found.st_nlink != 1 || found.st_uid != ::geteuid())) return std::nullopt;
  struct stat link {};
  if (!is_there && ::lstat(path.c_str(), &link) == 0) return std::nullopt;  // a link to nothing yet
  std::string target = path;
  if (is_there) {  // where links lead
    char* const real = ::realpath(path.c_str(), nullptr);
    if (real == nullptr) return std::nullopt;
    target = real;
    ::free(real);  // NOLINT(cppcoreguidelines-no-malloc): realpath's own
    if (::access(target.c_str(), W_OK) != 0) return errno;
  }
  const std::string beside = fmt::format("{}.new-{}", target, ::getpid());
  ::unlink(beside.c_str());  // of a process of this number that was killed
  const int descriptor = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return std::nullopt;
  // The group first: changing it may take mode bits away.
  const bool kept = !is_there || (::fchown(descriptor, static_cast<uid_t>(-1), found.st_gid) == 0 &&
                                  ::fchmod(descriptor, found.st_mode & 07777) == 0);
  const int error = write_and_close(descriptor, bytes);
  if (error == 0 && kept && ::rename(beside.c_str(), target.c_str()) == 0) return 0;
  ::unlink(beside.c_str());
  return error != 0 ? std::optional(error) : std::nullopt;  // a file that is mounted cannot be replaced
}

const CLI::App* last_named(const CLI::App* app) {
  for (auto named = app->get_subcommands(); !named.empty(); named = app->get_subcommands()) app = named.back();
  return app;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.pop_back();
  return text;
}

}  // namespace

std::string_view heading(Group group) {
  switch (group) {
    case Group::machine: return "The machine";
    case Group::traffic: return "Traffic";
    case Group::insight: return "Insight";
    case Group::tool: return "The tool itself";
  }
  return "Others";
}

Tool::Tool(Surroundings surroundings) : app_(std::string(kAbout), "fairway"), surroundings_(surroundings) {
  app_.formatter(std::make_shared<HelpFormatter>(std::min<std::size_t>(surroundings.columns, 110)));
  app_.set_help_flag("-h,--help", "Print this help");
  const std::string built = fmt::format("fairway {}\nbuilt with {}", version(), features());
  constexpr const char* kDoes = "Print the version and the features of this build";
  app_.set_version_flag("--version", built, kDoes);
  CLI::App& command = add(Group::tool, "version", kDoes);
  command.footer("Example:\n  fairway version");
  on_run(command, [this, built] { return print(built + "\n"); });
  app_.footer(std::string(kFooter));
  app_.require_subcommand(0, 1);
}

CLI::App& Tool::add(Group group, const std::string& name, const std::string& sentence) {
  CLI::App& command = add_below(app_, name, sentence);
  command.group(std::string(heading(group)));
  return command;
}

CLI::App& Tool::add_below(CLI::App& parent, const std::string& name, const std::string& sentence) {
  CLI::App& command = *parent.add_subcommand(name, sentence);
  command.footer("");  // CLI11 hands the parent's down
  command.group("Commands");
  command.require_subcommand(0, 1);
  return command;
}

void Tool::on_run(CLI::App& command, Run run) {
  runs_[&command] = std::move(run);
}

Exit Tool::main(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // As many tools have it: `help topo nics` is `topo nics --help`.
  while (!words.empty() && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);  // as CLI11 takes them
  try {
    app_.parse(words);
  } catch (const CLI::CallForHelp&) {
    // Help is not the answer to a command that does not exist.
    const std::vector<std::string> extras = app_.remaining(true);
    return extras.empty() ? print(last_named(&app_)->help()) : not_here(extras.front());
  } catch (const CLI::CallForVersion& version_text) {
    return print(std::string(version_text.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return misparsed(error);
  }
  const CLI::App* chosen = last_named(&app_);
  const auto run = runs_.find(chosen);
  if (run != runs_.end()) {
    const Exit exit = run->second();
    return exit == Exit::done && !unwritten_.empty() ? Exit::failed : exit;
  }
  if (chosen == &app_) return print(chosen->help());
  return misused("needs a command of its own");
}

Exit Tool::misparsed(const CLI::ParseError& error) const {
  const std::vector<std::string> extras = app_.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return not_here(extras.empty() ? std::string() : extras.front());
  // A mistyped option is named first, also where something else is missing.
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    for (const std::string& each : extras)
      if (each.starts_with("--") && each.size() > 2) return not_here(each);
  return misused(plain_words(one_line(error.what())));
}

Exit Tool::not_here(const std::string& word) const {
  const CLI::App* where = last_named(&app_);
  const bool is_option = word.rfind('-', 0) == 0;
  const std::string name = word.substr(0, word.find('='));
  if (is_option && where != &app_ && where->get_option_no_throw(name) != nullptr)
    return misused(fmt::format("{0} goes behind the command it is for: '{1} {0}'", name, running()));
  std::vector<std::string> names;
  if (is_option) {
    for (const CLI::Option* option : where->get_options()) {
      if (option->get_group().empty()) continue;  // one between the tool's own processes
      for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
    }
  } else {
    for (const CLI::App* command : where->get_subcommands([](const CLI::App*) { return true; })) {
      if (!command->get_group().empty()) names.push_back(command->get_name());
    }
  }
  std::string message = fmt::format("there is no {} '{}' here", is_option ? "option" : "command", one_line(word));
  if (!is_option && names.empty()) message = fmt::format("takes no further argument, but got '{}'", one_line(word));
  const std::string meant = nearest(name, names);
  if (!meant.empty()) message += fmt::format("; did you mean '{}'?", meant);
  return misused(message);
}

std::string Tool::running() const {
  return typed(*last_named(&app_));
}

Exit Tool::print(std::string_view text) {
  if (!unwritten_.empty()) return Exit::failed;  // said already
  const int error = write_all(STDOUT_FILENO, text);
  if (error == 0 || error == EPIPE) return Exit::done;
  unwritten_ = fmt::format("cannot write to standard output: {}", std::strerror(error));
  return fail(unwritten_);
}

Exit Tool::fail(std::string_view message) const {
  write_all(STDERR_FILENO, fmt::format("{}: {}\n", running(), one_line(in_flags(message))));
  return Exit::failed;
}

Exit Tool::fail(const Status& status) const {
  return fail(status.message());
}

Exit Tool::unreadable(const Status& status) const {
  fail(status);
  return Exit::usage;
}

std::string Tool::in_flags(std::string_view text) const {
  return tool::in_flags(std::string(text), *last_named(&app_));
}

Exit Tool::misused(std::string_view message) const {
  const std::string name = running();
  const std::string text = one_line(in_flags(message));
  const std::string_view stop = text.ends_with('?') ? "" : ";";
  write_all(STDERR_FILENO, fmt::format("{}: {}{} try '{} --help'\n", name, text, stop, name));
  return Exit::usage;
}

void Tool::remark(std::string_view message) const {
  write_all(STDERR_FILENO, fmt::format("{}: {}\n", running(), one_line(in_flags(message))));
}

Status one_output_each(std::span<const std::pair<const char*, std::string>> outputs) {
  for (auto a = outputs.begin(); a != outputs.end(); ++a)
    for (auto b = a + 1; b != outputs.end(); ++b)
      if (!a->second.empty() && a->second == b->second)
        return {ErrorCode::invalid_argument,
                fmt::format("{} and {} both go to {}: give one of them a file of its own", a->first, b->first,
                            a->second == "-" ? "standard output" : a->second)};
  return {};
}

Status can_write(const std::string& path) {
  if (path.empty() || path == "-") return {};
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode))
    return {ErrorCode::system_error, fmt::format("cannot write {}: {}", path, std::strerror(EISDIR))};
  if (::access(path.c_str(), W_OK) == 0) return {};
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (errno == ENOENT && ::access(folder.c_str(), W_OK) == 0) return {};
  return {ErrorCode::system_error, fmt::format("cannot write {}: {}", path, std::strerror(errno))};
}

Status write_file(const std::string& path, std::string_view bytes) {
  int error = 0;
  if (path == "-") {
    error = write_all(STDOUT_FILENO, bytes);
    if (error == EPIPE) error = 0;
  } else {
    const std::optional<int> replaced = replace_file(path, bytes);
    constexpr int kInPlace = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    error = replaced ? *replaced : write_and_close(::open(path.c_str(), kInPlace, 0666), bytes);
  }
  if (error == 0) return Status::ok();
  return {ErrorCode::system_error,
          fmt::format("cannot write {}: {}", path == "-" ? "to standard output" : path, std::strerror(error))};
}

}  // namespace fairway::tool

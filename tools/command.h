#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "fairway/status.h"

// How a command joins the tool: it defines `void add_<name>(Tool&)` in tools/<name>.cc, and tools/CMakeLists.txt names
// it in one line. docs: `fairway --help`.
namespace fairway::tool {

enum class Exit : std::uint8_t {
  done = 0,
  failed = 1,         // the answer is no: it failed, they differ, a check found an error; stderr says why
  usage = 2,          // the command line is not understood, or what it names cannot be read
  not_looked = 3,     // of `doctor`, whose 0, 1 and 2 are its verdict: it could not look, or not print what it saw
  interrupted = 130,  // by Ctrl-C, after what was measured until then is printed
};

// The headings of `fairway --help`, in their order there.
enum class Group : std::uint8_t { machine, traffic, insight, tool };
std::string_view heading(Group group);

// What the environment says, read once by main.
struct Surroundings {
  bool colour = false;          // stdout is a terminal that wants colour
  bool stdout_is_tty = false;   // a person reads
  bool stderr_is_tty = false;   // a person watches
  std::uint32_t columns = 100;  // of the terminal
};

// The command line while its commands register, then what the chosen command prints with. Lives in main, on its thread.
class Tool {
 public:
  using Run = std::function<Exit()>;

  explicit Tool(Surroundings surroundings);
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  // Adds `fairway <name>`. `sentence` stands beside it in --help: a verb first, no full stop.
  CLI::App& add(Group group, const std::string& name, const std::string& sentence);
  // Adds `fairway <parent> <name>`.
  CLI::App& add_below(CLI::App& parent, const std::string& name, const std::string& sentence);
  // What happens when `command` is the last one named on the command line and its options are read.
  void on_run(CLI::App& command, Run run);

  // Parses, runs the chosen command, and says in one line on stderr what went wrong.
  Exit main(int argc, char** argv);

  // Writes all of the text to stdout. A reader that went away is no failure: the rest is dropped and the exit is
  // `done`.
  Exit print(std::string_view text);
  // "fairway topo: <message>" on stderr. What an engine says of its options is said of the command's flags.
  Exit fail(const Status& status) const;
  Exit fail(std::string_view message) const;
  // The same for input that cannot be read or makes no sense.
  Exit unreadable(const Status& status) const;
  // The same with "try fairway topo --help"; for what only the command can see is wrong with its options.
  Exit misused(std::string_view message) const;
  // A remark on stderr that changes nothing.
  void remark(std::string_view message) const;
  // A text in which options of engines are the command's flags.
  [[nodiscard]] std::string in_flags(std::string_view text) const;

  [[nodiscard]] const Surroundings& surroundings() const { return surroundings_; }
  [[nodiscard]] const CLI::App& app() const { return app_; }

 private:
  [[nodiscard]] std::string running() const;  // "fairway topo nics"
  Exit misparsed(const CLI::ParseError& error) const;
  Exit not_here(const std::string& word) const;  // a command or an option that does not exist

  CLI::App app_;
  Surroundings surroundings_;
  std::map<const CLI::App*, Run> runs_;
};

// Writes a file whole; "-" is stdout. The message of a failure names the file and carries the system's own text.
Status write_file(const std::string& path, std::string_view bytes);
// Whether write_file() could, before there is anything to write; touches nothing. An empty path is no file: ok.
Status can_write(const std::string& path);
// Of the outputs that are wanted, {flag, path}: an error where two go to standard output, or into one file. A flag that
// prints there by itself has "-"; an empty path is not wanted.
Status one_output_each(std::span<const std::pair<const char*, std::string>> outputs);

using AddCommand = void (*)(Tool&);
// Every command of this build; written by tools/CMakeLists.txt.
std::span<const AddCommand> commands();

// "0.1.0", and what this build can do: "hwloc, pugixml".
std::string_view version();
std::string_view features();

}  // namespace fairway::tool

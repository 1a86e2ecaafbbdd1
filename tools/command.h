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
  failed = 1,         // it failed, machines differ, or a check found an error; stderr says why
  usage = 2,          // bad command line, or unreadable input
  not_looked = 3,     // of `doctor`, whose 0, 1, 2 and 4 are its verdict: it failed
  unclear = 4,        // of `doctor`: nothing wrong found, and not all was read
  interrupted = 130,  // by Ctrl-C; what was measured is printed
};

// The headings of `fairway --help`, in their order there.
enum class Group : std::uint8_t { machine, traffic, insight, tool };
std::string_view heading(Group group);

// The environment, read once by main.
struct Surroundings {
  bool colour = false;          // stdout is a terminal with colours
  bool stdout_is_tty = false;   // a person reads
  bool stderr_is_tty = false;   // a person watches
  std::uint32_t columns = 100;  // of the terminal
};

// The command line: commands register in it, and the chosen one prints with it. Lives in main, on its thread.
class Tool {
 public:
  using Run = std::function<Exit()>;

  explicit Tool(Surroundings surroundings);
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  // Adds `fairway <name>`. `sentence` is its text in --help: a verb first, no full stop.
  CLI::App& add(Group group, const std::string& name, const std::string& sentence);
  // Adds `fairway <parent> <name>`.
  CLI::App& add_below(CLI::App& parent, const std::string& name, const std::string& sentence);
  // Sets what runs if `command` is the last one on the command line.
  void on_run(CLI::App& command, Run run);

  // Parses the command line and runs the chosen command; an error is one line on stderr.
  Exit main(int argc, char** argv);

  // Writes the text to stdout. If the reader went away the rest is dropped, and the exit is `done`. Another error is
  // told once; the tool then fails, whatever the command returns.
  Exit print(std::string_view text);
  // "fairway topo: <message>" on stderr, with the command's flags in place of engine options.
  Exit fail(const Status& status) const;
  Exit fail(std::string_view message) const;
  // The same for input that cannot be read or is invalid.
  Exit unreadable(const Status& status) const;
  // The same with "try fairway topo --help", for bad options that only the command can detect.
  Exit misused(std::string_view message) const;
  // A remark on stderr.
  void remark(std::string_view message) const;
  // The text with the command's flags in place of engine options.
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
  std::string unwritten_;  // why standard output takes nothing
};

// Writes a whole file; "-" is stdout. An error names the file and has the system's text.
Status write_file(const std::string& path, std::string_view bytes);
// Whether write_file() could write it; touches nothing. An empty path is ok.
Status can_write(const std::string& path);
// For outputs {flag, path}: an error if two go to standard output or to one file. A flag that prints to standard output
// has "-"; an empty path is not requested.
Status one_output_each(std::span<const std::pair<const char*, std::string>> outputs);

using AddCommand = void (*)(Tool&);
// Every command of this build; written by tools/CMakeLists.txt.
std::span<const AddCommand> commands();

// "0.1.0", and what this build can do: "hwloc, pugixml".
std::string_view version();
std::string_view features();

}  // namespace fairway::tool

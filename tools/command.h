#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "fairway/status.h"

// How a command joins the tool: it defines `void add_<name>(Tool&)` in tools/<name>.cc, and tools/CMakeLists.txt names
// it in one line. docs: `fairway --help`.
namespace fairway::tool {

enum class Exit : std::uint8_t {
  done = 0,
  failed = 1,  // it could not be done, or what was looked for was found wanting; stderr says why
  usage = 2,   // the command line is not understood
};

// The headings of `fairway --help`, in their order there.
enum class Group : std::uint8_t { machine, traffic, insight, tool };
std::string_view heading(Group group);

// What the environment says, read once by main.
struct Surroundings {
  bool colour = false;          // stdout is a terminal that wants colour
  bool stdout_is_tty = false;   // a person reads
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
  // "fairway topo: <message>" on stderr.
  Exit fail(const Status& status) const;
  Exit fail(std::string_view message) const;
  // The same with "try fairway topo --help"; for what only the command can see is wrong with its options.
  Exit misused(std::string_view message) const;
  // A remark on stderr that changes nothing.
  void remark(std::string_view message) const;

  [[nodiscard]] const Surroundings& surroundings() const { return surroundings_; }
  [[nodiscard]] const CLI::App& app() const { return app_; }

 private:
  [[nodiscard]] std::string running() const;  // "fairway topo nics"
  Exit misparsed(const CLI::ParseError& error) const;

  CLI::App app_;
  Surroundings surroundings_;
  std::map<const CLI::App*, Run> runs_;
};

// Writes a file whole; "-" is stdout. The message of a failure names the file and carries the system's own text.
Status write_file(const std::string& path, std::string_view bytes);
// Whether write_file() could, before there is anything to write; touches nothing. An empty path is no file: ok.
Status can_write(const std::string& path);

using AddCommand = void (*)(Tool&);
// Every command of this build; written by tools/CMakeLists.txt.
std::span<const AddCommand> commands();

// "0.1.0", and what this build can do: "hwloc, pugixml".
std::string_view version();
std::string_view features();

}  // namespace fairway::tool

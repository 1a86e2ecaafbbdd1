#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "arguments.h"
#include "command.h"

// `fairway kv bench`: the Python module's benchmark of KV caches, under the tool's name.
namespace fairway::tool {
namespace {

struct KvOptions {
  std::string python;
  std::vector<std::string> models;
  std::string tokens, seconds, layer_ms;
  bool json = false;
};

// Runs `python -m fairway.kv bench`; reports a missing module as the tool reports its errors.
constexpr const char* kProgram = R"(
import sys
try:
    from fairway.kv.__main__ import main
except ImportError as missing:
    sys.exit(f"fairway kv bench: {sys.executable} cannot import fairway.kv ({missing}): run `pip install .` in Fairway's source "
             "tree, or name another interpreter by --python")
sys.exit(main(["bench", *sys.argv[1:]]))
)";

// Where the build that this program is of has the module; empty: it is an installed one.
std::string module_of_build() {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  const auto folder = std::filesystem::weakly_canonical(program / "../python", none);
  return std::filesystem::exists(folder / "fairway/__init__.py", none) ? folder.string() : std::string();
}

Exit bench(Tool& tool, const KvOptions& options) {
  std::string python = options.python;
  if (const std::string folder = module_of_build(); !folder.empty() && python.empty()) {
    const char* before = std::getenv("PYTHONPATH");
    const bool has_one = before != nullptr && *before != '\0';
    ::setenv("PYTHONPATH", (has_one ? folder + ":" + before : folder).c_str(), 1);
    python = FAIRWAY_BUILD_PYTHON;
  }
  if (python.empty()) python = "python3";
  std::vector<std::string> words{python, "-c", kProgram};
  for (const std::string& model : options.models) words.insert(words.end(), {"--model", model});
  const auto pass = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  pass("--tokens", options.tokens);
  pass("--seconds", options.seconds);
  pass("--layer-ms", options.layer_ms);
  if (options.json) words.emplace_back("--json");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  return tool.fail(fmt::format("cannot run {}: {}; --python names another interpreter", python, std::strerror(errno)));
}

}  // namespace

void add_kv(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "kv", "Measure what moving a KV cache costs");
  CLI::App& measured = tool.add_below(
      command, "bench",
      "Move KV caches of real models between two processes; compare with memcpy, sockets and NIXL's API");
  command.footer("Example:\n  fairway kv bench --model 7B --tokens 512");
  measured.footer(
      "Runs `python -m fairway.kv bench`, so it needs the Python module. docs/kv.md explains the columns.\n\nExample:\n"
      "  fairway kv bench --model 70B --tokens 1024");
  const auto options = std::make_shared<KvOptions>();
  add_list(measured, "--model", options->models, "Models (default: all): 7B,70B,70B-tp4,MLA");
  measured.add_option("--tokens", options->tokens, "Tokens of the prompt (default: 256)");
  measured.add_option("--seconds", options->seconds, "Time to measure each path (default: 1)");
  measured.add_option("--layer-ms", options->layer_ms, "Time to compute one layer (default: 1)");
  measured.add_flag("--json", options->json, "Print the figures as JSON, once all are measured");
  measured.add_option("--python", options->python, "Interpreter that has the module (default: python3)");
  tool.on_run(measured, [&tool, options] { return bench(tool, *options); });
}

}  // namespace fairway::tool

#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace fairway::tool {

// One command for a shell's completion, read from CLI11's description of it.
struct CompletionWord {
  std::vector<std::string> spellings;  // "--from", or "-h" and "--help"; of a command its name
  std::string sentence;
  bool takes_value = false;
  bool takes_file = false;
  std::vector<std::string> choices;  // of the value
};
struct CompletionNode {
  std::string path;  // "fairway topo nics"
  std::vector<CompletionWord> commands;
  std::vector<CompletionWord> options;
  std::vector<CompletionWord> arguments;
};
// Every command of the tool, parents first.
std::vector<CompletionNode> completion_nodes(const CLI::App& app);

std::string bash_completion(const std::vector<CompletionNode>& nodes);
std::string zsh_completion(const std::vector<CompletionNode>& nodes);
std::string fish_completion(const std::vector<CompletionNode>& nodes);

}  // namespace fairway::tool

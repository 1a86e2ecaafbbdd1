// fairway completion SHELL: the shell's script, generated from the commands and options of this build.
#include "completion.h"

#include <memory>

#include "arguments.h"
#include "command.h"
#include "help.h"

namespace fairway::tool {
namespace {

// CLI11 shows a closed set of values in the type's name: "TEXT:{bash,zsh,fish}".
std::vector<std::string> choices_of(const std::string& type_name) {
  const std::size_t open = type_name.find('{');
  const std::size_t close = type_name.find('}');
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos || close < open) return choices;
  std::string word;
  for (const char c : type_name.substr(open + 1, close - open - 1)) {
    if (c != ',') {
      word += c;
      continue;
    }
    choices.push_back(word);
    word.clear();
  }
  choices.push_back(word);
  return choices;
}

CompletionWord describe(const CLI::Option& option) {
  CompletionWord word;
  for (const std::string& name : option.get_snames()) word.spellings.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) word.spellings.push_back("--" + name);
  word.sentence = option.get_description();
  word.takes_value = option.get_items_expected_max() != 0;
  const std::string type = option.get_type_name();
  word.takes_file = type.find("FILE") != std::string::npos || type.find("PATH") != std::string::npos;
  word.choices = choices_of(type);
  return word;
}

void collect(const CLI::App& app, std::vector<CompletionNode>& nodes) {
  CompletionNode node;
  node.path = typed(app);
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? node.options : node.arguments).push_back(describe(*option));
  }
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : commands) {
    if (command->get_group().empty()) continue;
    node.commands.push_back(
        {.spellings = {command->get_name()}, .sentence = command->get_description(), .choices = {}});
  }
  nodes.push_back(std::move(node));
  for (const CLI::App* command : commands) collect(*command, nodes);
}

}  // namespace

std::vector<CompletionNode> completion_nodes(const CLI::App& app) {
  std::vector<CompletionNode> nodes;
  collect(app, nodes);
  return nodes;
}

void add_completion(Tool& tool) {
  auto shell = std::make_shared<std::string>();
  CLI::App& command = tool.add(Group::tool, "completion", "Print the completion script of a shell");
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
  command.footer(R"(Examples:
  source <(fairway completion bash)
  fairway completion zsh > "${fpath[1]}/_fairway"
  fairway completion fish > ~/.config/fish/completions/fairway.fish)");
  tool.on_run(command, [&tool, shell] {
    const std::vector<CompletionNode> nodes = completion_nodes(tool.app());
    if (*shell == "bash") return tool.print(bash_completion(nodes));
    if (*shell == "zsh") return tool.print(zsh_completion(nodes));
    return tool.print(fish_completion(nodes));
  });
}

}  // namespace fairway::tool

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion.h"

namespace fairway::tool {
namespace {

// A single-quoted word of bash, zsh and (with its own escape) fish.
std::string quoted(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += fish ? "\\'" : "'\\''";
    } else if (fish && c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "'";
}

// Shared by bash and zsh: walks over the words typed so far; `at` becomes the deepest command.
std::string walk(const std::vector<CompletionNode>& nodes) {
  std::string known;
  for (std::size_t i = 1; i < nodes.size(); ++i) known += (i > 1 ? "|" : "") + quoted(nodes[i].path);
  return fmt::format("    case \"$at $word\" in {}) at=\"$at $word\";; esac\n", known);
}

template <class Each>
void for_each_value(const std::vector<CompletionNode>& nodes, Each each) {
  for (const CompletionNode& node : nodes) {
    for (const CompletionWord& option : node.options) {
      for (const std::string& spelling : option.spellings) {
        if (option.takes_value) each(node.path + " " + spelling, option);
      }
    }
  }
}

bool takes_file(const CompletionNode& node) {
  for (const CompletionWord& argument : node.arguments) {
    if (argument.takes_file) return true;
  }
  return false;
}

std::vector<std::string> argument_choices(const CompletionNode& node) {
  for (const CompletionWord& argument : node.arguments) {
    if (!argument.choices.empty()) return argument.choices;
  }
  return {};
}

}  // namespace

std::string bash_completion(const std::vector<CompletionNode>& nodes) {
  std::string out = "# bash completion of fairway: source <(fairway completion bash)\n_fairway() {\n";
  out += "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at=fairway word words= files=\n";
  out += "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n" + walk(nodes) + "  done\n";
  out += "  case \"$at $before\" in\n";
  for_each_value(nodes, [&](const std::string& where, const CompletionWord& option) {
    out += fmt::format("    {}) ", quoted(where));
    out += option.takes_file ? "files=yes;;\n"
                             : fmt::format("words={};;\n", quoted(fmt::format("{}", fmt::join(option.choices, " "))));
  });
  out += "    *) case $at in\n";
  for (const CompletionNode& node : nodes) {
    std::vector<std::string> words = argument_choices(node);
    for (const CompletionWord& command : node.commands) words.push_back(command.spellings.front());
    for (const CompletionWord& option : node.options) words.push_back(option.spellings.back());
    out += fmt::format("      {}) words={}{};;\n", quoted(node.path), quoted(fmt::format("{}", fmt::join(words, " "))),
                       takes_file(node) ? " files=yes" : "");
  }
  out += "    esac;;\n  esac\n";
  out +=
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\"; [[ $files ]] && compgen -f -- \"$current\")\n";
  out += "  [[ $files ]] && compopt -o filenames\n  return 0\n}\ncomplete -F _fairway fairway\n";
  return out;
}

std::string zsh_completion(const std::vector<CompletionNode>& nodes) {
  std::string out =
      "#compdef fairway\n# zsh completion of fairway: put it in a folder of $fpath as _fairway\n_fairway() {\n";
  out += "  local at=fairway word before=$words[CURRENT-1]\n  local -a found\n";
  out += "  for word in ${words[2,CURRENT-1]}; do\n" + walk(nodes) + "  done\n";
  out += "  case \"$at $before\" in\n";
  for_each_value(nodes, [&](const std::string& where, const CompletionWord& option) {
    out += fmt::format("    {}) ", quoted(where));
    out += option.takes_file ? "_files; return;;\n"
                             : fmt::format("compadd -- {}; return;;\n", fmt::join(option.choices, " "));
  });
  out += "  esac\n  case $at in\n";
  for (const CompletionNode& node : nodes) {
    out += fmt::format("    {}) found=(\n", quoted(node.path));
    const auto line = [&](const std::string& spelling, const std::string& sentence) {
      out += fmt::format("      {}\n", quoted(spelling + ":" + sentence));
    };
    for (const std::string& choice : argument_choices(node)) line(choice, "");
    for (const CompletionWord& command : node.commands) line(command.spellings.front(), command.sentence);
    for (const CompletionWord& option : node.options) line(option.spellings.back(), option.sentence);
    out += takes_file(node) ? "      ); _files;;\n" : "      );;\n";
  }
  // Both ways of installing: autoloaded as _fairway, or sourced.
  out += "  esac\n  _describe command found\n}\n";
  out += "if [[ ${funcstack[1]} == _fairway ]]; then _fairway \"$@\"; else compdef _fairway fairway; fi\n";
  return out;
}

std::string fish_completion(const std::vector<CompletionNode>& nodes) {
  std::string out = "# fish completion of fairway: put it in ~/.config/fish/completions/fairway.fish\n";
  out +=
      "function __fairway_at\n  set -l at fairway\n  for word in (commandline -opc)[2..-1]\n    switch \"$at $word\"\n "
      "     case";
  for (std::size_t i = 1; i < nodes.size(); ++i) out += " " + quoted(nodes[i].path, true);
  out += "\n        set at \"$at $word\"\n    end\n  end\n  test \"$at\" = \"$argv\"\nend\ncomplete -c fairway -f\n";
  for (const CompletionNode& node : nodes) {
    const std::string start = fmt::format("complete -c fairway -n {}", quoted("__fairway_at " + node.path, true));
    for (const CompletionWord& command : node.commands) {
      out += fmt::format("{} -a {} -d {}\n", start, command.spellings.front(), quoted(command.sentence, true));
    }
    for (const CompletionWord& option : node.options) {
      out += start;
      for (const std::string& spelling : option.spellings) {
        const bool is_long = spelling.rfind("--", 0) == 0;
        out += fmt::format(" {} {}", is_long ? "-l" : "-s", spelling.substr(is_long ? 2 : 1));
      }
      if (option.takes_value) out += option.takes_file ? " -r -F" : " -x";
      if (!option.choices.empty()) out += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
      out += fmt::format(" -d {}\n", quoted(option.sentence, true));
    }
    const std::vector<std::string> choices = argument_choices(node);
    if (!choices.empty()) out += fmt::format("{} -a '{}'\n", start, fmt::join(choices, " "));
    if (takes_file(node)) out += start + " -F\n";
  }
  return out;
}

}  // namespace fairway::tool

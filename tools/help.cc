#include "help.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fairway::tool {
namespace {

constexpr std::size_t kColumn = 26;  // where descriptions begin

std::vector<std::string> wrap(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    if (!word.empty()) lines.back() += (lines.back().empty() ? "" : " ") + word;
    if (end < text.size() && text[end] == '\n') lines.emplace_back();
    at = end + 1;
  }
  return lines;
}

std::string left_side(const CLI::Option& option) {
  std::string left = option.nonpositional() ? option.get_name(false, true) : option.get_name(true);
  // get_name joins spellings by a bare comma.
  for (std::size_t comma = left.find(','); comma != std::string::npos; comma = left.find(',', comma + 2)) {
    left.insert(comma + 1, " ");
  }
  if (option.get_items_expected_max() != 0 && option.nonpositional()) {
    // "TEXT:{auto,light,dark}" for a closed set, "LEGS:UINT in [1 - 64]" for limits.
    const std::string type = option.get_type_name();
    const std::size_t choices = type.find(":{");
    left += " " + (choices == std::string::npos ? type.substr(0, type.find(':')) : type.substr(choices + 1));
  }
  return left;
}

// "1.000000" as "1"; other text stays.
std::string short_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') return text;
  return fmt::format("{:.{}g}", value, std::abs(value) < 1e9 ? 9 : 6);
}

// All that 64 bits hold: the type's end and nobody's limit.
bool no_limit(const std::string& high) {
  return std::strtod(high.c_str(), nullptr) > 9e18;
}

// With what holds where it is not given, and the limits: "Least time to measure each row (default: 0.15; 0 to 3600)".
std::string description(const CLI::Option& option) {
  std::vector<std::string> facts;
  const std::string usual = option.get_default_str();
  if (!usual.empty() && usual != "\"\"" && option.get_description().find("(default: ") == std::string::npos)
    facts.push_back("default: " + short_number(usual));
  const std::string type = option.get_type_name();
  const std::size_t open = type.find(" in [");
  const std::size_t dash = type.find(" - ", open == std::string::npos ? 0 : open);
  if (open != std::string::npos && dash != std::string::npos && type.ends_with(']')) {
    const std::string low = short_number(type.substr(open + 5, dash - open - 5));
    const std::string high = type.substr(dash + 3, type.size() - dash - 4);
    facts.push_back(no_limit(high) ? low + " or more" : low + " to " + short_number(high));
  }
  std::string text = option.get_description();
  if (facts.empty()) return text;
  const bool open_end = text.ends_with(')') && text.rfind("(default: ") == text.rfind('(');  // one pair for all of it
  if (open_end) text.pop_back();
  return fmt::format("{}{}{})", text, open_end ? "; " : " (", fmt::join(facts, "; "));
}

// The text of `message` before and after `part`; none if it has no such part.
std::optional<std::pair<std::string, std::string>> around(const std::string& message, std::string_view part) {
  const std::size_t at = message.find(part);
  if (at == std::string::npos) return {};
  return std::pair(message.substr(0, at), message.substr(at + part.size()));
}

}  // namespace

std::string typed(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : typed(*app.get_parent()) + " " + app.get_name();
}

CLI::Validator no_empty_name() {
  return {[](const std::string& name) { return name.empty() ? std::string("the name is empty") : std::string(); }, ""};
}

std::string plain_words(const std::string& message) {
  if (const auto parts = around(message, ": 1 required "); parts && parts->second.ends_with(" missing")) {
    const std::string what = parts->second.substr(0, parts->second.size() - 8);
    const bool vowel = !what.empty() && std::string_view("AEIOaeio").find(what.front()) != std::string_view::npos;
    return fmt::format("{} needs {} {}", parts->first, vowel ? "an" : "a", what);
  }
  if (const auto parts = around(message, " not in {"); parts && parts->second.ends_with('}')) {
    const auto value = around(parts->first, ": ");
    std::string choices = parts->second.substr(0, parts->second.size() - 1);
    for (std::size_t comma = choices.find(','); comma != std::string::npos; comma = choices.find(',', comma + 2))
      choices.insert(comma + 1, " ");
    if (value) return fmt::format("{}: '{}' is none of {}", value->first, value->second, choices);
  }
  if (const auto parts = around(message, " not in range ")) {
    const auto value = around(parts->first, ": Value ");
    std::string limits = parts->second;
    if (limits.starts_with('[') && limits.ends_with(']')) limits = limits.substr(1, limits.size() - 2);
    auto ends = around(limits, " to ");
    if (!ends) ends = around(limits, " - ");
    if (value && ends && no_limit(ends->second))
      return fmt::format("{}: '{}' is no number from {} on", value->first, value->second, short_number(ends->first));
    if (value && ends) {
      return fmt::format("{}: '{}' is no number from {} to {}", value->first, value->second, short_number(ends->first),
                         short_number(ends->second));
    }
  }
  return message;
}

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = word.size() / 2 + 1;  // beyond this it is another word, not a typing error
  for (const std::string& name : names) {
    // Levenshtein's distance, one row at a time.
    std::vector<std::size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0]++;
      for (std::size_t j = 1; j <= name.size(); ++j) {
        const std::size_t replaced = diagonal + (word[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = name;
    }
  }
  return best;
}

std::string HelpFormatter::row(const std::string& left, const std::string& right) const {
  std::string out = "  " + left;
  const std::size_t room = width_ > kColumn + 20 ? width_ - kColumn : 20;
  bool below = left.size() + 4 > kColumn;  // a long left side has its description on the next line
  if (below) out += "\n";
  for (const std::string& line : wrap(right, room)) {
    out += below ? std::string(kColumn, ' ') : std::string(kColumn - 2 - left.size(), ' ');
    out += line + "\n";
    below = true;
  }
  return out;
}

std::string HelpFormatter::make_usage(const CLI::App* app, std::string) const {
  std::string out = "Usage: " + typed(*app);
  const auto commands = app->get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  for (const CLI::Option* option : app->get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    const std::string name = option->get_name(true);
    out += option->get_required() ? " " + name : " [" + name + "]";
    if (option->get_expected_max() > 1) out += "...";
  }
  out += " [OPTIONS]";
  if (!commands.empty()) out += app->get_require_subcommand_min() > 0 ? " COMMAND" : " [COMMAND]";
  return out + "\n";
}

std::string HelpFormatter::make_subcommands(const CLI::App* app, CLI::AppFormatMode) const {
  const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> groups;
  for (const CLI::App* command : commands) {
    const std::string group = command->get_group();
    if (!group.empty() && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  std::string out;
  for (const std::string& group : groups) {
    out += "\n" + group + ":\n";
    for (const CLI::App* command : commands) {
      if (command->get_group() == group) out += row(command->get_name(), command->get_description());
    }
  }
  return out;
}

std::string HelpFormatter::make_group(std::string group, bool, std::vector<const CLI::Option*> options) const {
  std::string out = "\n" + group + ":\n";
  for (const CLI::Option* option : options) out += row(left_side(*option), description(*option));
  return out;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string out;
  for (const std::string& line : wrap(app->get_description(), width_)) out += line + "\n";
  out += "\n" + make_usage(app, name) + make_subcommands(app, mode);
  const auto arguments =
      app->get_options([](const CLI::Option* o) { return o->get_positional() && !o->get_group().empty(); });
  if (!arguments.empty()) out += make_group("Arguments", true, arguments);
  std::string groups = make_groups(app, mode);  // CLI11 separates them by an empty line, as make_group does
  for (std::size_t at = groups.find("\n\n\n"); at != std::string::npos; at = groups.find("\n\n\n")) groups.erase(at, 1);
  out += groups;
  const std::string footer = app->get_footer();
  if (!footer.empty()) out += "\n";
  // Wrap prose, leave columns alone.
  for (std::size_t at = 0, end = 0; at < footer.size(); at = end + 1) {
    end = std::min(footer.find('\n', at), footer.size());
    const std::string text = footer.substr(at, end - at);
    if (text.starts_with(' '))
      out += text + "\n";
    else
      for (const std::string& line : wrap(text, width_)) out += line + "\n";
  }
  return out;
}

}  // namespace fairway::tool

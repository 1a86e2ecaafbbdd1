#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace fairway::tool {

// The layout of --help: purpose, usage, commands and options in columns, examples.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
  std::string make_group(std::string group, bool is_positional, std::vector<const CLI::Option*> opts) const override;

 private:
  // "  left   right", the right wrapped to the width.
  [[nodiscard]] std::string row(const std::string& left, const std::string& right) const;

  std::size_t width_;
};

// "fairway topo nics": the command as it is typed.
std::string typed(const CLI::App& app);

// Refuses an empty name, as of an unset variable, which would look as if the option were missing.
CLI::Validator no_empty_name();

// CLI11's error in the tool's words: "--svg needs a FILE".
std::string plain_words(const std::string& message);

// The nearest of `names` to a mistyped word; empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& names);

}  // namespace fairway::tool

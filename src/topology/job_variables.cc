#include "topology/job_variables.h"

#include <algorithm>

#include "topology/text.h"

// Settings of jobs in the lines that start them.
namespace fairway::topology {
namespace {

// The words of a shell's line, without quotes, up to its end or a comment; "A=1; B=2" are two.
std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> out;
  std::string word;
  bool any = false;
  char quote = 0;
  const auto end = [&] {
    if (any) out.push_back(std::move(word));
    word.clear();
    any = false;
  };
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      any = true;
    } else if (c == ' ' || c == '\t' || c == ';' || c == '&' || c == '|') {
      end();
    } else if (c == '#' && !any) {
      break;
    } else {
      word += c;
      any = true;
    }
  }
  end();
  return out;
}

// "NCCL_IB_HCA"
bool is_name(std::string_view word) {
  if (!word.starts_with("NCCL_") && !word.starts_with("UCX_") && !word.starts_with("FI_")) return false;
  return word.size() > 4 && std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

bool add(std::string_view word, std::vector<JobVariable>& out) {
  const auto equals = word.find('=');
  if (equals == word.npos || !is_name(word.substr(0, equals))) return false;
  out.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
  return true;
}

}  // namespace

std::vector<JobVariable> job_variables(std::string_view line) {
  std::vector<JobVariable> out;
  if (line.find("NCCL_") == line.npos && line.find("UCX_") == line.npos && line.find("FI_") == line.npos) return out;
  const auto words = shell_words(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (add(word, out)) continue;
    // "--env=NAME=VALUE", "--export=ALL,NAME=VALUE"
    if (word.starts_with("--")) {
      for (const auto part : text::split(word.substr(std::min(word.find('='), word.size() - 1) + 1), ','))
        add(part, out);
      continue;
    }
    // "-genv NAME VALUE" of MPICH, "setenv NAME VALUE", "set -x NAME VALUE"
    const bool next_is_value = word == "-genv" || word == "-env" || word == "setenv" || word == "-x" || word == "-gx";
    if (next_is_value && i + 2 < words.size() && is_name(words[i + 1]) && (word != "-x" || words[i - 1] == "set"))
      out.push_back({words[i + 1], words[i + 2]});
  }
  return out;
}

std::optional<JobVariable> variable_of_yaml(std::string_view line, std::string_view next) {
  const auto value_of = [](std::string_view words, std::string_view key) -> std::optional<std::string_view> {
    words = text::trim(words);
    if (words.starts_with("- ")) words = text::trim(words.substr(2));
    if (!words.starts_with(key)) return {};
    words = text::trim(words.substr(key.size()));
    if (words.size() > 1 && (words.front() == '"' || words.front() == '\'') && words.back() == words.front())
      words = words.substr(1, words.size() - 2);
    return words;
  };
  const auto name = value_of(line, "name:");
  if (!name || !is_name(*name)) return {};
  const auto value = value_of(next, "value:");
  if (!value) return {};
  return JobVariable{std::string(*name), std::string(*value)};
}

bool starts_a_job(std::string_view words) {
  words = text::trim(words);
  const auto word = words.substr(0, words.find_first_of(" \t"));
  if (word.empty()) return false;
  const auto name = word.substr(word.rfind('/') + 1);
  constexpr std::string_view kNames[] = {
      "mpirun",  "mpiexec", "mpiexec.hydra", "srun",       "torchrun",  "docker",     "podman",  "kubectl",
      "python",  "python3", "bash",          "sh",         "sudo",      "env",        "numactl", "taskset",
      "timeout", "nsys",    "deepspeed",     "accelerate", "vllm",      "ray",        "prun",    "aprun",
      "jsrun",   "nohup",   "exec",          "sglang",     "apptainer", "singularity"};
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  return word.starts_with("./") || word.starts_with('/') || word.starts_with("../") || name.ends_with("_perf") ||
         name.ends_with(".sh") || name.ends_with(".py") || name.ends_with("_perftest") || name.starts_with("ib_");
}

}  // namespace fairway::topology

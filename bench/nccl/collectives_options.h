#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

// What collectives.cu is asked to do. A value that it cannot take ends the program with the remedy.

struct Options {
  int ranks = 0, turns = 3;
  std::string operations =
      "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,reduce,gather,scatter,all_to_allv,messages";
  std::size_t from = 8, to = std::size_t{1} << 30;
  std::size_t windows_from = 0;  // GpuOptions has it
  std::string type = "f32", algorithm = "automatic";
  bool alone = false;
  const char* json = nullptr;
};

[[noreturn]] inline void refuse(const std::string& option, const std::string& value, const char* wanted) {
  std::fprintf(stderr, "collectives: %s%s%s: %s\n", option.c_str(), value.empty() ? "" : " ", value.c_str(), wanted);
  std::exit(2);
}

inline std::uint64_t number_of(const std::string& option, const std::string& value, const char* wanted,
                               bool bytes = false) {
  char* end = nullptr;
  const bool digits = !value.empty() && value[0] >= '0' && value[0] <= '9';
  std::uint64_t number = std::strtoull(value.c_str(), &end, 10);
  if (const char* const unit = std::strchr("KMG", *end); bytes && *end != 0 && unit != nullptr) {
    number <<= 10 * (unit - "KMG" + 1);
    ++end;
  }
  if (!digits || *end != 0) refuse(option, value, wanted);
  return number;
}

inline std::size_t bytes_of(const std::string& option, const std::string& value) {
  return number_of(option, value, "a number of bytes, such as 8, 64K, 16M or 1G", true);
}

// Each of a list with commas is one of `known`.
inline void check_words(const std::string& option, const std::string& value, const std::string& known) {
  for (std::size_t at = 0; at <= value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size());
    if (end == at || ("," + known + ",").find("," + value.substr(at, end - at) + ",") == std::string::npos)
      refuse(option, value, ("there are " + known).c_str());
    at = end + 1;
  }
}

inline int ranks_of(const std::string& value) {
  const std::uint64_t ranks = number_of("--ranks", value, "1 to 8");
  if (ranks < 1 || ranks > 8) refuse("--ranks", value, "1 to 8");
  return static_cast<int>(ranks);
}

inline Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--alone") {
      options.alone = true;
      continue;
    }
    if (name.rfind("--", 0) == 0 && *value == 0) refuse(name, "", "needs a value");
    if (name == "--ranks")
      options.ranks = ranks_of(value);
    else if (name == "--turns")
      options.turns = static_cast<int>(std::clamp<std::uint64_t>(number_of(name, value, "a number"), 1, 1000));
    else if (name == "--operations")
      options.operations = value;
    else if (name == "--from")
      options.from = std::max<std::size_t>(4, bytes_of(name, value));
    else if (name == "--to")
      options.to = bytes_of(name, value);
    else if (name == "--type")
      options.type = value;
    else if (name == "--algorithm")
      options.algorithm = value;
    else if (name == "--windows-from")
      options.windows_from = bytes_of(name, value);
    else if (name == "--json")
      options.json = value;
    else
      refuse(name, "", "unknown option");
    ++i;
  }
  check_words("--operations", options.operations, Options().operations);
  check_words("--type", options.type, "f32,bf16");
  check_words("--algorithm", options.algorithm, "automatic,one_shot,direct");
  if (options.to < options.from) refuse("--to", std::to_string(options.to), "at least --from");
  return options;
}

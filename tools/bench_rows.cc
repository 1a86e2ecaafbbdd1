#include "bench_rows.h"

#include <ctime>
#include <fstream>

#include <fmt/format.h>
#include <sys/utsname.h>

#include "command.h"

namespace fairway::tool::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string in_csv(const std::string& value) {
  if (value.find_first_of(",\"\n") == std::string::npos) return value;
  std::string out = "\"";
  for (const char c : value) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

std::string csv_of(const std::vector<Fields>& rows) {
  std::string text;
  for (const Fields& row : rows) {
    if (text.empty()) {
      for (const Field& field : row) text += (text.empty() ? "" : ",") + std::string(field.name);
      text += '\n';
    }
    std::string line;
    for (const Field& field : row) line += (&field == row.data() ? "" : ",") + in_csv(field.value);
    text += line + '\n';
  }
  return text;
}

std::string json_of(const std::string& format, const std::string& command, const std::vector<Fields>& rows) {
  utsname system{};
  ::uname(&system);
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  std::string text = fmt::format(
      "{{\n  \"format\": {},\n  \"version\": 1,\n  \"command\": {},\n  \"date\": {},\n"
      "  \"cpu\": {},\n  \"kernel\": {},\n  \"rows\": [",
      quoted(format), quoted(command), quoted(date), quoted(cpu_model()), quoted(system.release));
  for (const Fields& row : rows) {
    text += &row == rows.data() ? "\n    {" : ",\n    {";
    bool first = true;
    for (const Field& field : row) {
      text +=
          fmt::format("{}\"{}\": {}", first ? "" : ", ", field.name, field.text ? quoted(field.value) : field.value);
      first = false;
    }
    text += '}';
  }
  return text + "\n  ]\n}\n";
}

Exit tell(Tool& tool, const std::vector<std::pair<std::string, std::string>>& files, const std::string& text) {
  bool to_stdout = false;
  for (const auto& [file, bytes] : files) {
    if (file.empty()) continue;
    to_stdout |= file == "-";
    if (Status status = write_file(file, bytes); !status) return tool.fail(status);
  }
  return to_stdout ? Exit::done : tool.print(text);
}

}  // namespace fairway::tool::bench

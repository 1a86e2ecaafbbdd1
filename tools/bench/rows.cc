#include "rows.h"

#include <algorithm>
#include <cstdio>
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

std::string or_null(const std::string& text) {
  return text.empty() ? "null" : quoted(text);
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
  return {};
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

std::string known(double value, int digits) {
  return value == 0 ? std::string() : fmt::format("{:.{}f}", value, digits);
}

std::string json_of(const std::string& format, const std::string& command, const std::vector<Fields>& rows,
                    bool complete) {
  utsname system{};
  ::uname(&system);
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  std::string text = fmt::format(
      "{{\n  \"format\": {},\n  \"version\": 1,\n  \"command\": {},\n  \"date\": {},\n"
      "  \"cpu\": {},\n  \"kernel\": {},\n  \"complete\": {},\n  \"rows\": [",
      quoted(format), quoted(command), quoted(date), or_null(cpu_model()), quoted(system.release), complete);
  for (const Fields& row : rows) {
    text += &row == rows.data() ? "\n    {" : ",\n    {";
    bool first = true;
    for (const Field& field : row) {
      text += fmt::format("{}\"{}\": {}", first ? "" : ", ", field.name,
                          field.text || field.value.empty() ? or_null(field.value) : field.value);
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

Meter::Meter(const Tool& tool, bool asked)
    : terminal_(tool.surroundings().stderr_is_tty), on_(terminal_ || asked), start_(std::chrono::steady_clock::now()) {}

void Meter::operator()(const std::string& what) {
  ++begun_;
  if (!on_) return;
  std::string text = what;
  if (all_ > 0) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const std::size_t done = begun_ - 1, left = all_ > done ? all_ - done : 0;
    text = fmt::format("{} of {}", std::min(begun_, all_), all_);
    if (done > 0)
      text += fmt::format(", {:.0f} s left", seconds / static_cast<double>(done) * static_cast<double>(left));
    text += ": " + what;
  }
  std::fputs((terminal_ ? "\r\033[K" + text + " " : text + "\n").c_str(), stderr);
}

void Meter::clear() const {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace fairway::tool::bench

#include "topology/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fairway::topology::text {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
char to_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

template <class T>
std::optional<T> whole(std::string_view s, int base) {
  T value{};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (s.empty() || error != std::errc{} || end != s.data() + s.size()) return {};
  return value;
}

}  // namespace

std::string_view trim(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), to_lower);
  return out;
}

bool starts_with_nocase(std::string_view s, std::string_view prefix) {
  return s.size() >= prefix.size() && lower(s.substr(0, prefix.size())) == lower(prefix);
}

std::optional<std::uint64_t> to_unsigned(std::string_view s) {
  return whole<std::uint64_t>(s, 10);
}
std::optional<std::int64_t> to_signed(std::string_view s) {
  return whole<std::int64_t>(s, 10);
}
std::optional<std::uint32_t> to_u32(std::string_view s) {
  return whole<std::uint32_t>(s, 10);
}

std::optional<std::uint64_t> to_hex(std::string_view s) {
  if (s.starts_with("0x") || s.starts_with("0X")) s.remove_prefix(2);
  return whole<std::uint64_t>(s, 16);
}

std::optional<double> to_double(std::string_view s) {
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc{} || end != s.data() + s.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<double> leading_double(std::string_view s) {
  s = trim(s);
  double value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return {};
  return value;
}

std::optional<std::uint64_t> leading_unsigned(std::string_view s) {
  s = trim(s);
  std::size_t n = 0;
  while (n < s.size() && is_digit(s[n])) ++n;
  return to_unsigned(s.substr(0, n));
}

std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(std::ranges::count(s, separator)) + 1);
  for (;;) {
    const auto at = s.find(separator);
    out.push_back(s.substr(0, at));
    if (at == std::string_view::npos) return out;
    s.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> words(std::string_view s) {
  std::vector<std::string_view> out;
  out.reserve(8);  // of most lines
  std::size_t i = 0;
  while (i < s.size()) {
    while (i < s.size() && is_blank(s[i])) ++i;
    const auto start = i;
    while (i < s.size() && !is_blank(s[i])) ++i;
    if (i > start) out.push_back(s.substr(start, i - start));
  }
  return out;
}

std::vector<std::string_view> lines(std::string_view s) {
  auto out = split(s, '\n');
  for (auto& line : out) {
    if (line.ends_with('\r')) line.remove_suffix(1);
  }
  if (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

std::string count(std::size_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

std::string without_escapes(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\x1b') {
      out += s[i];
      continue;
    }
    if (i + 1 < s.size() && s[i + 1] == '[') {
      i += 2;
      while (i < s.size() && !(s[i] >= '@' && s[i] <= '~')) ++i;
    }
  }
  return out;
}

namespace {

// "> " and "2026-03-03T10:00:00.000Z ": what stands before a line's own words; 0: nothing.
std::size_t quote_mark(std::string_view line) {
  return line.starts_with("> ") ? 2 : line == ">" ? 1 : 0;
}
std::size_t time_mark(std::string_view line) {
  const auto blank = line.find(' ');
  if (blank == line.npos || blank < 20 || blank > 36 || line[4] != '-' || line[10] != 'T' || line[13] != ':') return 0;
  return is_digit(line[0]) && (line[blank - 1] == 'Z' || is_digit(line[blank - 1])) ? blank + 1 : 0;
}

template <class Mark>
std::string without_marks(std::string_view s, Mark mark) {
  const auto all = lines(s);
  std::size_t marked = 0;
  for (const auto line : all) {
    if (trim(line).empty()) continue;
    if (mark(line) == 0) return std::string(s);
    ++marked;
  }
  if (marked < 2) return std::string(s);
  std::string out;
  for (const auto line : all) {
    out += line.substr(mark(line));
    out += '\n';
  }
  return out;
}

}  // namespace

std::string without_wrapping(std::string_view s) {
  auto out = without_marks(without_marks(s, quote_mark), time_mark);
  for (const auto& [escaped, plain] :
       {std::pair{std::string_view("&gt;"), '>'}, std::pair{std::string_view("&lt;"), '<'},
        std::pair{std::string_view("&amp;"), '&'}}) {
    if (out.find(escaped) == out.npos) continue;
    std::string next;
    std::size_t from = 0;
    for (auto at = out.find(escaped); at != out.npos; at = out.find(escaped, from)) {
      next.append(out, from, at - from);
      next += plain;
      from = at + escaped.size();
    }
    next.append(out, from);
    out = std::move(next);
  }
  return out;
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto a_start = a.find_first_not_of('0', i);
      const auto b_start = b.find_first_not_of('0', j);
      std::size_t a_end = std::min(a_start, a.size());
      std::size_t b_end = std::min(b_start, b.size());
      const auto a_first = a_end;
      const auto b_first = b_end;
      while (a_end < a.size() && is_digit(a[a_end])) ++a_end;
      while (b_end < b.size() && is_digit(b[b_end])) ++b_end;
      const auto a_number = a.substr(a_first, a_end - a_first);
      const auto b_number = b.substr(b_first, b_end - b_first);
      if (a_number.size() != b_number.size()) return a_number.size() < b_number.size();
      if (a_number != b_number) return a_number < b_number;
      i = a_end;
      j = b_end;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  const bool a_done = i >= a.size();
  const bool b_done = j >= b.size();
  if (a_done && b_done) return a < b;  // "x01" and "x1": some order
  return a_done;
}

std::string quote(std::string_view s, std::size_t limit) {
  std::string out;
  out.reserve(std::min(s.size(), limit));
  for (const char c : s.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 || byte >= 0x7f) ? '?' : c;
  }
  if (s.size() > limit) out += "...";
  return out;
}

std::string as_plain(std::string_view s) {
  std::string out;
  const bool little = s.starts_with("\xff\xfe");
  if (little || s.starts_with("\xfe\xff")) {
    const auto unit = [&](std::size_t at) -> std::uint32_t {
      const auto low = static_cast<unsigned char>(s[at + (little ? 0 : 1)]);
      const auto high = static_cast<unsigned char>(s[at + (little ? 1 : 0)]);
      return static_cast<std::uint32_t>(high) << 8U | low;
    };
    const auto add = [&out](std::uint32_t bits) { out += static_cast<char>(static_cast<unsigned char>(bits)); };
    for (std::size_t i = 2; i + 1 < s.size(); i += 2) {
      auto code = unit(i);
      if (code >= 0xd800 && code < 0xdc00 && i + 3 < s.size() && unit(i + 2) >= 0xdc00 && unit(i + 2) < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10U) + (unit(i + 2) - 0xdc00);
        i += 2;
      }
      if (code < 0x80) {
        add(code);
      } else if (code < 0x800) {
        add(0xc0 | code >> 6U), add(0x80 | (code & 0x3fU));
      } else if (code < 0x10000) {
        add(0xe0 | code >> 12U), add(0x80 | (code >> 6U & 0x3fU)), add(0x80 | (code & 0x3fU));
      } else {
        add(0xf0 | code >> 18U), add(0x80 | (code >> 12U & 0x3fU)), add(0x80 | (code >> 6U & 0x3fU));
        add(0x80 | (code & 0x3fU));
      }
    }
    s = out;
  }
  if (s.find('\r') == s.npos || s.find('\n') != s.npos) return out;
  std::string feeds(s);
  std::ranges::replace(feeds, '\r', '\n');
  return feeds;
}

}  // namespace fairway::topology::text

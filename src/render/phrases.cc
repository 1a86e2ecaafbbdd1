#include "render/phrases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "topology/text.h"

namespace fairway::render {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

std::string without(std::string text, std::initializer_list<std::string_view> fillers) {
  for (const std::string_view filler : fillers) {
    for (std::size_t at = text.find(filler); at != std::string::npos; at = text.find(filler, at)) {
      text.erase(at, filler.size());
    }
  }
  std::string out;
  for (const std::string_view word : topology::text::words(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

// "mlx5_" and 12 of "mlx5_12"; no number if there is none, or if it has leading zeros.
std::pair<std::string, std::optional<std::uint64_t>> split_number(const std::string& name) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const std::string tail = name.substr(digits);
  if (tail.empty() || tail.size() > 9 || (tail.size() > 1 && tail[0] == '0')) return {name, {}};
  return {name.substr(0, digits), std::stoull(tail)};
}

}  // namespace

std::string rate(double gbs) {
  if (gbs >= 99.95) return fmt::format("{:.0f}", gbs);
  const int decimals = gbs >= 0.995 ? 1 : 2;
  std::string out = fmt::format("{:.{}f}", gbs, decimals);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

std::string rate(const topology::Fact<double>& gbs) {
  return gbs ? rate(*gbs) : "?";
}

std::string range(const Expected& expected) {
  const auto one = [](double gbs) { return gbs >= 9.95 ? fmt::format("{:.0f}", gbs) : rate(gbs); };
  const std::string low = one(expected.low_gbs);
  const std::string high = one(expected.high_gbs);
  return low == high ? low : low + "-" + high;
}

std::string gigabits(double gbps) {
  return fmt::format("{} Gb/s", rate(gbps));
}

std::string gibibytes(std::uint64_t bytes) {
  constexpr double kMebi = 1024.0 * 1024.0;
  const double mebibytes = static_cast<double>(bytes) / kMebi;
  if (mebibytes < 1024) return fmt::format("{:.0f} MiB", mebibytes);
  if (mebibytes < 10 * 1024) return fmt::format("{:.1f} GiB", mebibytes / 1024);
  return fmt::format("{:.0f} GiB", mebibytes / 1024);
}

std::string count(std::size_t n, std::string_view one, std::string_view many) {
  if (n == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", n, one) : fmt::format("{} {}", n, many);
}

std::string pcie_words(const topology::PcieLink& link) {
  static constexpr std::array<double, 6> kGenerations{2.5, 5, 8, 16, 32, 64};
  std::string out;
  if (link.speed_gts) {
    const auto* known = std::ranges::find(kGenerations, *link.speed_gts);
    out = known != kGenerations.end() ? fmt::format("Gen{}", known - kGenerations.begin() + 1)
                                      : fmt::format("{} GT/s", rate(*link.speed_gts));
  }
  if (link.width) out += fmt::format("{}x{}", out.empty() ? "" : " ", *link.width);
  return out;
}

std::string short_gpu_model(std::string_view model) {
  // "GA102GL [A10G]" of pci.ids: the common name is in brackets at the end.
  const std::size_t open = model.rfind('[');
  if (open != std::string_view::npos && model.ends_with(']') && open > 0 && model.find("AMD/ATI", open) == model.npos)
    model = model.substr(open + 1, model.size() - open - 2);
  return without(std::string(model),
                 {"NVIDIA ", "Tesla ", "AMD ", "Corporation", "[", "]", "Instinct ", "GeForce ", "Radeon "});
}

std::string short_cpu_model(std::string_view model) {
  const std::string bare = without(std::string(model), {"(R)", "(TM)", "(tm)"});
  std::string out;
  for (const std::string_view word : topology::text::words(bare)) {
    if (word == "CPU" || word == "Processor" || word.ends_with("-Core")) continue;
    out += fmt::format("{}{}", out.empty() ? "" : " ", word);
  }
  const std::size_t clock = out.find(" @");
  return clock == std::string::npos ? out : out.substr(0, clock);
}

std::string short_nic_model(std::string_view model) {
  // "MT2910 Family [ConnectX-7]": the common name is in brackets.
  const std::size_t open = model.find('[');
  const std::size_t close = model.find(']');
  if (open != std::string_view::npos && close != std::string_view::npos && close > open + 3) {
    return std::string(model.substr(open + 1, close - open - 1));
  }
  for (const std::string_view family : {"ConnectX-3", "ConnectX-4", "ConnectX-5", "ConnectX-6 Dx", "ConnectX-6",
                                        "BlueField-2", "BlueField-3", "BlueField-4", "ConnectX-8", "ConnectX-7"}) {
    if (model.find(family) != std::string_view::npos) return std::string(family);
  }
  return without(std::string(model),
                 {"Corporation ", "Ethernet Controller ", "Gigabit ", "Network Connection", "network device"});
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !is_continuation(c); }));
}

std::string pad(std::string_view text, std::size_t columns) {
  const std::size_t have = columns_of(text);
  return std::string(text) + std::string(columns > have ? columns - have : 0, ' ');
}

std::string pad_left(std::string_view text, std::size_t columns) {
  const std::size_t have = columns_of(text);
  return std::string(columns > have ? columns - have : 0, ' ') + std::string(text);
}

std::string pad_center(std::string_view text, std::size_t columns) {
  const std::size_t have = columns_of(text);
  const std::size_t left = columns > have ? (columns - have) / 2 : 0;
  return pad(std::string(left, ' ') + std::string(text), columns);
}

std::string cut(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  if (columns == 0) return {};
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if (!is_continuation(text[end]) && seen++ == columns - 1) break;
  }
  while (end > 0 && text[end - 1] == ' ') --end;
  return std::string(text.substr(0, end)) + "…";
}

std::vector<std::string> wrap(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines(1);
  for (const std::string_view word : topology::text::words(text)) {
    if (!lines.back().empty() && columns_of(lines.back()) + 1 + columns_of(word) > columns) lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
  }
  return lines;
}

std::string fold_names(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size();) {
    const auto [stem, first] = split_number(names[i]);
    std::size_t end = i + 1;
    while (first && end < names.size()) {
      const auto [next_stem, next] = split_number(names[end]);
      if (next_stem != stem || next != *first + (end - i)) break;
      ++end;
    }
    if (!out.empty()) out += ", ";
    out += names[i];
    if (end - i == 2) out += ", " + names[i + 1];
    if (end - i > 2) out += fmt::format("-{}", *first + (end - i - 1));
    i = end;
  }
  return out;
}

std::string tally(const std::vector<std::string>& values, std::string_view glue) {
  std::vector<std::pair<std::string, std::size_t>> seen;
  for (const std::string& value : values) {
    const auto same = std::ranges::find_if(seen, [&](const auto& one) { return one.first == value; });
    if (same == seen.end()) {
      seen.emplace_back(value, 1);
    } else {
      ++same->second;
    }
  }
  std::string out;
  for (const auto& [value, times] : seen) {
    if (!out.empty()) out += glue;
    out += times == 1 ? value : fmt::format("{} x {}", times, value);
  }
  return out;
}

std::string bare_reason(std::string_view reason) {
  for (const std::string_view head : {"no rail: ", "rail: "}) {
    if (reason.starts_with(head)) return std::string(reason.substr(head.size()));
  }
  return std::string(reason);
}

std::string TextStyle::ink(Ink ink, std::string_view text) const {
  if (!colour || ink == Ink::plain) return std::string(text);
  static constexpr std::array<std::string_view, 8> kCodes{"0", "1", "2", "32", "36", "33", "31", "35"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(ink)], text);
}

Ink ink_of(topology::PathKind kind) {
  using topology::PathKind;
  switch (kind) {
    case PathKind::self: return Ink::faint;
    case PathKind::nvlink:
    case PathKind::xgmi:
    case PathKind::pix: return Ink::good;
    case PathKind::pxb:
    case PathKind::phb: return Ink::fair;
    case PathKind::node: return Ink::poor;
    case PathKind::sys: return Ink::bad;
    case PathKind::unknown: return Ink::faint;
  }
  return Ink::plain;
}

}  // namespace fairway::render

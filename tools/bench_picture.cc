#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "bench.h"

// Two charts for each operation: time and rate over the size, both axes logarithmic; a line for each path, dashed for
// its roof.
namespace fairway::tool::bench {
namespace {

constexpr double kWidth = 430, kHeight = 250, kLeft = 64, kTop = 64, kGapX = 560, kGapY = 350;
constexpr std::array<const char*, 6> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

struct Axis {
  double low = 0, high = 1;  // logarithms
  double place(double value, double length) const { return (std::log10(value) - low) / (high - low) * length; }
};

Axis axis(double least, double most) {
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most));
  return {low, high > low ? high : low + 1};
}

struct Point {
  double size = 0, value = 0;
};
struct Line {
  std::vector<Point> points;
  bool dashed = false;
  std::size_t colour = 0;
};

std::string line_of(const Row& row) {
  return fmt::format("{}, {} to {}{}", row.path, row.from, row.to, row.memory.empty() ? "" : " (" + row.memory + ")");
}

std::string time_text(double us) {
  if (us < 0.99) return fmt::format("{:.0f} ns", us * 1000);
  if (us < 999) return fmt::format("{:.0f} us", us);
  return us < 999e3 ? fmt::format("{:.0f} ms", us / 1000) : fmt::format("{:.0f} s", us / 1e6);
}
std::string giga_text(double gb) {
  if (gb < 0.00099) return fmt::format("{:.0f} kB/s", gb * 1e6);
  return gb < 0.99 ? fmt::format("{:.0f} MB/s", gb * 1000) : fmt::format("{:.0f} GB/s", gb);
}

std::string chart(double left, double top, const std::string& title, const std::vector<Line>& lines,
                  std::string (*text)(double)) {
  double least = 1e300, most = 0, smallest = 1e300, largest = 0;
  for (const Line& line : lines)
    for (const Point& point : line.points) {
      least = std::min(least, point.value);
      most = std::max(most, point.value);
      smallest = std::min(smallest, point.size);
      largest = std::max(largest, point.size);
    }
  if (most == 0) return {};
  const Axis y = axis(least, most);
  const double x_low = std::log2(smallest), x_high = std::max(std::log2(largest), x_low + 1);
  const auto x_of = [&](double size) { return left + (std::log2(size) - x_low) / (x_high - x_low) * kWidth; };
  const auto y_of = [&](double value) { return top + kHeight - y.place(value, kHeight); };
  std::string out = fmt::format("<text class=\"title\" x=\"{}\" y=\"{}\">{}</text>\n", left, top - 12, escaped(title));
  for (double power = y.low; power <= y.high; ++power) {
    const double at = y_of(std::pow(10, power));
    out += fmt::format(
        "<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/><text class=\"y\" x=\"{}\" "
        "y=\"{:.1f}\">{}</text>\n",
        left, at, left + kWidth, at, left - 6, at + 4, text(std::pow(10, power)));
  }
  const double step = std::max(1.0, std::ceil((x_high - x_low) / 6));
  for (double power = x_low; power <= x_high + 0.01; power += step) {
    const double at = x_of(std::exp2(power));
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\"/><text class=\"x\" x=\"{:.1f}\" "
        "y=\"{}\">{}</text>\n",
        at, top, at, top + kHeight, at, top + kHeight + 18,
        size_text(static_cast<std::uint64_t>(std::llround(std::exp2(power)))));
  }
  for (const Line& line : lines) {
    std::string points;
    for (const Point& point : line.points) points += fmt::format("{:.1f},{:.1f} ", x_of(point.size), y_of(point.value));
    out += fmt::format("<polyline class=\"{}\" stroke=\"{}\" points=\"{}\"/>\n", line.dashed ? "roof" : "path",
                       kColours[line.colour % kColours.size()], points);
    if (!line.dashed)
      for (const Point& point : line.points)
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>", x_of(point.size),
                           y_of(point.value), kColours[line.colour % kColours.size()]);
  }
  return out + '\n';
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string svg(const std::vector<Row>& rows, const std::string& title) {
  std::vector<std::string> paths;
  std::vector<Operation> operations;
  for (const Row& row : rows) {
    const std::string path = line_of(row);
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    if (std::find(operations.begin(), operations.end(), row.operation) == operations.end())
      operations.push_back(row.operation);
  }
  const double width = kLeft + kGapX + kWidth + 40;
  const double legend = kTop + 16 + 26.0 * static_cast<double>(1 + (paths.size() + 2) / 3);
  const double height = legend + kGapY * static_cast<double>(operations.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n"
      "<style>svg{{background:#fff;font:13px "
      "sans-serif}}text{{fill:#222}}.title{{font-weight:600}}.head{{font-size:18px;font-weight:600}}"
      ".y{{text-anchor:end;font-size:11px}}.x{{text-anchor:middle;font-size:11px}}.grid{{stroke:#ddd}}"
      ".path{{fill:none;stroke-width:2}}.roof{{fill:none;stroke-width:1.5;stroke-dasharray:5 4}}"
      "@media "
      "(prefers-color-scheme:dark){{svg{{background:#161b22}}text{{fill:#e6edf3}}.grid{{stroke:#30363d}}}}</style>\n"
      "<text class=\"head\" x=\"{2}\" y=\"32\">{3}</text>\n",
      width, height, kLeft, escaped(title));
  for (std::size_t i = 0; i < paths.size(); ++i)
    out += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"14\" height=\"4\" fill=\"{2}\"/><text x=\"{3:.0f}\" "
        "y=\"{4:.0f}\">{5}</text>\n",
        kLeft + 330.0 * static_cast<double>(i % 3), 52 + 22.0 * static_cast<double>(i / 3),
        kColours[i % kColours.size()], kLeft + 20 + 330.0 * static_cast<double>(i % 3),
        58 + 22.0 * static_cast<double>(i / 3), escaped(paths[i]));
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.roof_us > 0; }))
    out += fmt::format("<text x=\"{}\" y=\"{:.0f}\">dashed: what this machine needs for it at the least</text>\n",
                       kLeft, legend - 50);
  const std::uint64_t depth = rows.empty() ? 1 : rows.front().depth;
  const std::string at_once = depth == 1 ? "one at a time" : fmt::format("{} at once", depth);
  double top = legend;
  for (const Operation operation : operations) {
    std::vector<Line> times, rates;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      Line time{{}, false, i}, least{{}, true, i}, rate{{}, false, i}, most{{}, true, i};
      for (const Row& row : rows) {
        if (row.operation != operation || line_of(row) != paths[i]) continue;
        const auto bytes = static_cast<double>(row.size * std::max<std::uint64_t>(1, row.pages));
        time.points.push_back({bytes, row.p50_us});
        rate.points.push_back({bytes, row.bytes_per_second / 1e9});
        if (row.roof_us == 0) continue;
        least.points.push_back({bytes, row.roof_us});
        most.points.push_back({bytes, bytes / row.roof_us / 1e3});
      }
      for (Line* line : {&least, &time})
        if (!line->points.empty()) times.push_back(*line);
      for (Line* line : {&most, &rate})
        if (!line->points.empty()) rates.push_back(*line);
    }
    out += chart(kLeft, top, name_of(operation) + ": time, median", times, time_text);
    out += chart(kLeft + kGapX, top, name_of(operation) + ": rate, " + at_once, rates, giga_text);
    top += kGapY;
  }
  return out + "</svg>\n";
}

}  // namespace fairway::tool::bench

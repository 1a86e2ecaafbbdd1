#include <algorithm>

#include <fmt/format.h>

#include "bench.h"

// Every memory against every other: a table and a picture, what is expected below what was measured.
namespace fairway::tool::bench {
namespace {

struct Names {
  std::vector<std::string> from, to;
  std::vector<Operation> operations;
};

Names names_of(const std::vector<Row>& rows) {
  Names names;
  const auto add = [](auto& list, const auto& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  for (const Row& row : rows) {
    add(names.from, row.from);
    add(names.to, row.to);
    add(names.operations, row.operation);
  }
  return names;
}

const Row* find(const std::vector<Row>& rows, Operation operation, const std::string& from, const std::string& to) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& each) {
    return each.operation == operation && each.from == from && each.to == to;
  });
  return row == rows.end() ? nullptr : &*row;
}

std::string range_of(const Row* row) {
  if (row == nullptr || row->expected.low <= 0) return "";
  return rate_text(row->expected.low) + " - " + rate_text(row->expected.high);
}

// How well a cell does: green within what is expected, over yellow to red at half of its low end; where nothing is
// expected a shade of blue by its part of the largest.
std::string colour(const Row& row, double largest) {
  if (row.expected.low <= 0)
    return fmt::format("hsl(210 60% {:.0f}%)", 94 - 24 * std::min(1.0, row.bytes_per_second / largest));
  const double part = std::clamp(row.bytes_per_second / row.expected.low * 2 - 1, 0.0, 1.0);
  return fmt::format("hsl({:.0f} 65% 75%)", 130 * part);
}

}  // namespace

std::string matrix(const std::vector<Row>& rows) {
  const Names names = names_of(rows);
  std::string text;
  bool any_range = false;
  for (const Operation operation : names.operations) {
    text += fmt::format("{}{} of {}, GB/s: median (peak)\n{:>14}", text.empty() ? "" : "\n", name_of(operation),
                        size_text(rows.front().size), "from \\ to");
    for (const std::string& to : names.to) text += fmt::format(" {:>20}", to);
    text += '\n';
    for (const std::string& from : names.from) {
      std::string measured = fmt::format("{:>14}", from), expected = fmt::format("{:>14}", "expected");
      bool has_range = false;
      for (const std::string& to : names.to) {
        const Row* row = find(rows, operation, from, to);
        const std::string range = range_of(row);
        has_range |= !range.empty();
        expected += fmt::format(" {:>20}", range);
        measured +=
            fmt::format(" {:>20}", row == nullptr ? "-"
                                                  : fmt::format("{} ({}) {}", rate_text(row->bytes_per_second),
                                                                rate_text(row->peak_bytes_per_second), row->path));
      }
      text += measured + '\n';
      if (has_range) text += expected + '\n';
      any_range |= has_range;
    }
  }
  return any_range ? text + "\nexpected: of the way that is taken, by the machine's model (`fairway predict`).\n"
                   : text;
}

std::string matrix_svg(const std::vector<Row>& rows, const std::string& title) {
  constexpr double kCell = 108, kRow = 54, kHead = 110, kTop = 104;
  const Names names = names_of(rows);
  double largest = 1;
  for (const Row& row : rows) largest = std::max(largest, row.bytes_per_second);
  const double wide = kHead + kCell * static_cast<double>(names.to.size());
  const double high = kRow * static_cast<double>(names.from.size()) + 90;
  const double width = std::max(560.0, wide + 40);
  const double height = kTop + high * static_cast<double>(names.operations.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\">\n"
      "<style>svg{{background:#fff;font:13px sans-serif}}text{{fill:#222}}.head{{font-size:18px;font-weight:600}}"
      ".title{{font-weight:600}}.mid{{text-anchor:middle}}.end{{text-anchor:end}}.in{{fill:#111;text-anchor:middle}}"
      ".small{{font-size:11px}}@media (prefers-color-scheme:dark){{svg{{background:#161b22}}text{{fill:#e6edf3}}"
      ".in{{fill:#111}}}}</style>\n<text class=\"head\" x=\"20\" y=\"32\">{2}</text>\n"
      "<text class=\"small\" x=\"20\" y=\"54\">GB/s, median; below it what the machine's model expects.</text>\n"
      "<text class=\"small\" x=\"20\" y=\"70\">Green: as expected. Red: half of that or less. Blue: the model has no "
      "figure.</text>\n",
      width, height, escaped(title));
  double top = kTop;
  for (const Operation operation : names.operations) {
    out += fmt::format("<text class=\"title\" x=\"20\" y=\"{:.0f}\">{} of {}, from (rows) to (columns)</text>\n", top,
                       name_of(operation), size_text(rows.front().size));
    for (std::size_t c = 0; c < names.to.size(); ++c)
      out += fmt::format("<text class=\"mid\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
                         kHead + kCell * (static_cast<double>(c) + 0.5), top + 24, escaped(names.to[c]));
    for (std::size_t r = 0; r < names.from.size(); ++r) {
      const double y = top + 34 + kRow * static_cast<double>(r);
      out += fmt::format("<text class=\"end\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", kHead - 8, y + 30,
                         escaped(names.from[r]));
      for (std::size_t c = 0; c < names.to.size(); ++c) {
        const Row* row = find(rows, operation, names.from[r], names.to[c]);
        if (row == nullptr) continue;
        const double x = kHead + kCell * static_cast<double>(c);
        out += fmt::format(
            "<g><title>{} by {}: {}</title><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"4\" "
            "fill=\"{}\"/><text class=\"in\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text><text class=\"in small\" x=\"{:.0f}\" "
            "y=\"{:.0f}\">{}</text></g>\n",
            escaped(names.from[r] + " to " + names.to[c]), escaped(row->path),
            escaped(row->expected.bound.empty() ? "nothing expected" : "bound by " + row->expected.bound), x + 2, y + 2,
            kCell - 4, kRow - 4, colour(*row, largest), x + kCell / 2, y + (row->expected.low > 0 ? 25 : 32),
            rate_text(row->bytes_per_second), x + kCell / 2, y + 42, range_of(row));
      }
    }
    top += high;
  }
  return out + "</svg>\n";
}

}  // namespace fairway::tool::bench

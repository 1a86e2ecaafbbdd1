#include "render/matrix.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace fairway::render {
namespace {

using topology::NodeKind;
using topology::NodeRef;
using topology::PathClass;
using topology::PathKind;
using topology::PathMatrix;

// Whether a and b have the same class to every other end.
bool look_alike(const PathMatrix& paths, std::size_t a, std::size_t b) {
  for (std::size_t other = 0; other < paths.ends.size(); ++other) {
    if (other == a || other == b) continue;
    if (!(paths.at(a, other) == paths.at(b, other))) return false;
  }
  return true;
}

// In a group every pair has one class, so that one cell can say it.
bool fits(const PathMatrix& paths, const MatrixGroup& group, std::size_t end) {
  if (paths.ends[group.members[0]].kind != NodeKind::nic || paths.ends[end].kind != NodeKind::nic) return false;
  if (!look_alike(paths, group.members[0], end)) return false;
  return group.members.size() < 2 || paths.at(group.members[0], group.members[1]) == paths.at(group.members[0], end);
}

struct Cell {
  std::string path;
  std::string rate;
  PathKind kind = PathKind::unknown;
};

std::vector<std::vector<Cell>> cells_of(const FoldedMatrix& folded, const ExpectRate& expect) {
  const std::size_t n = folded.groups.size();
  std::vector<std::vector<Cell>> cells(n, std::vector<Cell>(n));
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < n; ++column) {
      Cell& cell = cells[row][column];
      const PathClass path = folded.at(row, column);
      cell.path = path.to_string();
      cell.kind = path.kind;
      const auto [a, b] = folded.ends(row, column);
      if (!expect || a == b) continue;
      const std::optional<Expected> expected = expect(a, b);
      if (expected) cell.rate = range(*expected);
    }
  }
  return cells;
}

std::string legend(const topology::Machine& machine, const FoldedMatrix& folded, const TextStyle& style) {
  std::string out;
  for (const MatrixGroup& group : folded.groups) {
    if (folded.paths.ends[group.members[0]].kind != NodeKind::nic) continue;
    std::vector<std::string> names;
    for (const std::size_t member : group.members)
      names.push_back(topology::node_name(machine, folded.paths.ends[member]));
    const std::string entry = fmt::format("{}: {}", group.name, fold_names(names));
    const std::size_t line_start = out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1;
    if (out.empty()) {
      out += "  ";
    } else if (columns_of(std::string_view(out).substr(line_start)) + columns_of(entry) + 3 > style.columns) {
      out += "\n  ";
    } else {
      out += "   ";
    }
    out += entry;
  }
  return out.empty() ? out : "\n" + out + "\n";
}

}  // namespace

std::string range(const Expected& expected) {
  const auto one = [](double gbs) { return gbs >= 9.95 ? fmt::format("{:.0f}", gbs) : rate(gbs); };
  const std::string low = one(expected.low_gbs);
  const std::string high = one(expected.high_gbs);
  return low == high ? low : low + "-" + high;
}

PathClass FoldedMatrix::at(std::size_t row, std::size_t column) const {
  const auto& members = groups[row].members;
  if (row == column && members.size() > 1) return paths.at(members[0], members[1]);
  return paths.at(members[0], groups[column].members[0]);
}

std::pair<NodeRef, NodeRef> FoldedMatrix::ends(std::size_t row, std::size_t column) const {
  const auto& members = groups[row].members;
  const std::size_t other = row == column && members.size() > 1 ? members[1] : groups[column].members[0];
  return {paths.ends[members[0]], paths.ends[other]};
}

std::string matrix_name(const PathMatrix& paths, std::size_t end) {
  // node.index of a NIC counts those outside the matrix too; its number is its place among the matrix's NICs.
  const NodeKind kind = paths.ends[end].kind;
  const auto before = std::count_if(paths.ends.begin(), paths.ends.begin() + static_cast<std::ptrdiff_t>(end),
                                    [kind](NodeRef node) { return node.kind == kind; });
  return fmt::format("{}{}", kind == NodeKind::gpu ? "GPU" : "NIC", before);
}

FoldedMatrix fold(PathMatrix paths, std::size_t most_columns) {
  FoldedMatrix folded;
  const bool must_fold = paths.ends.size() > most_columns;
  for (std::size_t end = 0; end < paths.ends.size(); ++end) {
    const auto home = must_fold ? std::find_if(folded.groups.begin(), folded.groups.end(),
                                               [&](const MatrixGroup& group) { return fits(paths, group, end); })
                                : folded.groups.end();
    if (home == folded.groups.end()) {
      folded.groups.push_back({"", {end}});
    } else {
      home->members.push_back(end);
    }
  }
  for (MatrixGroup& group : folded.groups) {
    std::vector<std::string> names;
    for (const std::size_t member : group.members) names.push_back(matrix_name(paths, member));
    group.name = fold_names(names);
  }
  folded.paths = std::move(paths);
  return folded;
}

std::string matrix_text(const topology::Machine& machine, const ExpectRate& expect, const TextStyle& style) {
  const FoldedMatrix folded = fold(topology::path_matrix(machine));
  const std::size_t n = folded.groups.size();
  if (n == 0) return "No GPU and no NIC, so there is no path to show.\n";
  const auto cells = cells_of(folded, expect);

  std::size_t head = 0;
  std::size_t path_width = 1;
  std::size_t rate_width = 0;
  for (std::size_t row = 0; row < n; ++row) {
    head = std::max(head, columns_of(folded.groups[row].name));
    for (const Cell& cell : cells[row]) {
      path_width = std::max(path_width, cell.path.size());
      rate_width = std::max(rate_width, cell.rate.size());
    }
  }
  const std::size_t beside = rate_width == 0 ? path_width : path_width + 1 + rate_width;
  const bool stacked = rate_width > 0 && head + n * (std::max(beside, head) + 2) > style.columns;
  const std::size_t width = std::max(stacked ? std::max(path_width, rate_width) : beside, head);

  std::string out = pad("", head);
  for (const MatrixGroup& group : folded.groups) out += "  " + style.ink(Ink::bold, pad_center(group.name, width));
  out += "\n";
  for (std::size_t row = 0; row < n; ++row) {
    std::string top = style.ink(Ink::bold, pad(folded.groups[row].name, head));
    std::string bottom = pad("", head);
    for (const Cell& cell : cells[row]) {
      const Ink ink = ink_of(cell.kind);
      if (stacked || rate_width == 0) {
        top += "  " + style.ink(ink, pad_center(cell.path, width));
        bottom += "  " + style.ink(Ink::faint, pad_center(cell.rate, width));
      } else {
        const std::string both = pad(cell.path, path_width) + " " + pad_left(cell.rate, rate_width);
        top += "  " + style.ink(ink, pad_center(both, width));
      }
    }
    const auto trimmed = [](std::string line) {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      return line + "\n";
    };
    out += trimmed(top);
    if (stacked) out += trimmed(bottom);
  }
  return out + legend(machine, folded, style);
}

std::string matrix_plain(const topology::Machine& machine) {
  const PathMatrix paths = topology::path_matrix(machine);
  std::string out;
  for (std::size_t end = 0; end < paths.ends.size(); ++end) out += "\t" + matrix_name(paths, end);
  out += "\n";
  for (std::size_t row = 0; row < paths.ends.size(); ++row) {
    out += matrix_name(paths, row);
    for (std::size_t column = 0; column < paths.ends.size(); ++column) out += "\t" + paths.at(row, column).to_string();
    out += "\n";
  }
  return out;
}

}  // namespace fairway::render

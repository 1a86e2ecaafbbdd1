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

// All pairs within a group have one class, so that one cell shows it.
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

// The width of a column, and whether its rates are below the classes.
struct MatrixColumn {
  std::size_t name = 0;
  std::size_t path = 1;
  std::size_t rate = 0;
  std::size_t width = 0;
  bool stacked = false;
  bool is_nic = false;

  void unstack() { width = std::max(name, rate == 0 ? path : path + 1 + rate); }
  void stack() {
    stacked = rate > 0;
    width = std::max({name, path, rate});
  }
};

std::vector<MatrixColumn> columns_of_matrix(const FoldedMatrix& folded, const std::vector<std::vector<Cell>>& cells) {
  std::vector<MatrixColumn> columns(folded.groups.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    MatrixColumn& column = columns[i];
    column.name = columns_of(folded.groups[i].name);
    column.is_nic = folded.paths.ends[folded.groups[i].members[0]].kind == NodeKind::nic;
    for (const auto& row : cells) {
      column.path = std::max(column.path, row[i].path.size());
      column.rate = std::max(column.rate, row[i].rate.size());
    }
    column.unstack();
  }
  return columns;
}

std::string trimmed(std::string line) {
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "\n";
}

// All rows of the columns [from, to).
std::string block(const FoldedMatrix& folded, const std::vector<std::vector<Cell>>& cells,
                  const std::vector<MatrixColumn>& columns, std::size_t head, std::size_t from, std::size_t to,
                  const TextStyle& style) {
  std::string line = pad("", head);
  for (std::size_t i = from; i < to; ++i) {
    line += "  " + style.ink(Ink::bold, pad_center(folded.groups[i].name, columns[i].width));
  }
  std::string out = trimmed(line);
  for (std::size_t row = 0; row < folded.groups.size(); ++row) {
    std::string top = style.ink(Ink::bold, pad(folded.groups[row].name, head));
    std::string bottom = pad("", head);
    bool has_bottom = false;
    for (std::size_t i = from; i < to; ++i) {
      const Cell& cell = cells[row][i];
      const MatrixColumn& column = columns[i];
      std::string text = cell.path;
      if (!column.stacked && column.rate > 0)
        text = pad(cell.path, column.path) + " " + pad_left(cell.rate, column.rate);
      top += "  " + style.ink(ink_of(cell.kind), pad_center(text, column.width));
      const std::string below = column.stacked ? cell.rate : std::string();
      bottom += "  " + (below.empty() ? pad("", column.width) : style.ink(Ink::faint, pad_center(below, column.width)));
      has_bottom = has_bottom || !below.empty();
    }
    out += trimmed(top);
    if (has_bottom) out += trimmed(bottom);
  }
  return out;
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

FoldedMatrix fold(PathMatrix paths, std::size_t most_columns) {
  FoldedMatrix folded;
  const bool must_fold = paths.ends.size() > most_columns;
  for (std::size_t end = 0; end < paths.ends.size(); ++end) {
    const auto home = must_fold ? std::ranges::find_if(
                                      folded.groups, [&](const MatrixGroup& group) { return fits(paths, group, end); })
                                : folded.groups.end();
    if (home == folded.groups.end()) {
      folded.groups.push_back({"", {end}});
    } else {
      home->members.push_back(end);
    }
  }
  for (MatrixGroup& group : folded.groups) {
    std::vector<std::string> names;
    for (const std::size_t member : group.members) names.push_back(paths.names[member]);
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

  const auto shared_head = std::ranges::max_element(
      folded.groups, [](const auto& a, const auto& b) { return columns_of(a.name) < columns_of(b.name); });
  const std::size_t head = columns_of(shared_head->name);
  std::vector<MatrixColumn> columns = columns_of_matrix(folded, cells);
  const auto width_of = [&](std::size_t from, std::size_t to) {
    std::size_t width = head;
    for (std::size_t i = from; i < to; ++i) width += 2 + columns[i].width;
    return width;
  };
  if (width_of(0, n) > style.columns) {
    for (MatrixColumn& column : columns) column.stack();
  }
  std::string out;
  for (std::size_t from = 0; from < n;) {
    std::size_t to = from + 1;
    while (to < n && width_of(from, to + 1) <= style.columns) ++to;
    // If it does not fit in one piece, the NICs begin the next.
    for (std::size_t i = from + 1; i < to && to < n; ++i) {
      if (columns[i].is_nic && !columns[from].is_nic) to = i;
    }
    if (from > 0) out += "\n";
    out += block(folded, cells, columns, head, from, to, style);
    from = to;
  }
  return out + legend(machine, folded, style);
}

std::string matrix_plain(const topology::Machine& machine) {
  const PathMatrix paths = topology::path_matrix(machine);
  std::string out;
  for (std::size_t end = 0; end < paths.ends.size(); ++end) out += "\t" + paths.names[end];
  out += "\n";
  for (std::size_t row = 0; row < paths.ends.size(); ++row) {
    out += paths.names[row];
    for (std::size_t column = 0; column < paths.ends.size(); ++column) out += "\t" + paths.at(row, column).to_string();
    out += "\n";
  }
  return out;
}

}  // namespace fairway::render

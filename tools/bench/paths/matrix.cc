#include <algorithm>

#include <fmt/format.h>

#include "bench/bench.h"

// Every pair of memories: the measured rate, and the expected one below it.
namespace fairway::tool::bench {
namespace {

struct Names {
  std::vector<std::string> from, to;
  std::vector<Operation> operations;
};

Names names_of(const std::vector<Row>& rows) {
  Names names;
  const auto add = [](auto& list, const auto& name) {
    if (std::ranges::find(list, name) == list.end()) list.push_back(name);
  };
  for (const Row& row : rows) {
    add(names.from, row.from);
    add(names.to, row.to);
    add(names.operations, row.operation);
  }
  return names;
}

const Row* find(const std::vector<Row>& rows, Operation operation, const std::string& from, const std::string& to) {
  const auto row = std::ranges::find_if(
      rows, [&](const Row& each) { return each.operation == operation && each.from == from && each.to == to; });
  return row == rows.end() ? nullptr : &*row;
}

std::string range_of(const Row* row) {
  if (row == nullptr || row->expected.low <= 0) return "";
  return rate_text(row->expected.low) + " - " + rate_text(row->expected.high);
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
  return any_range ? text + "\nexpected: of the path that is taken, by the machine's model (`fairway predict`).\n"
                   : text;
}

}  // namespace fairway::tool::bench

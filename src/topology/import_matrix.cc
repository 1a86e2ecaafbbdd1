#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/catalog.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr auto kMatrix = Source::topo_matrix;
constexpr std::size_t kMaxEnds = 1024;
constexpr std::size_t kMaxMatrixBytes = 8U << 20;

std::optional<std::uint32_t> numbered(std::string_view word, std::string_view prefix) {
  if (!word.starts_with(prefix)) return {};
  const auto n = text::to_u32(word.substr(prefix.size()));
  return n && *n < 65536 ? n : std::nullopt;
}

// A cell; or several without a blank between them, as nvidia-smi prints them beside long names: "NODENODE", "NV18SYS".
std::vector<PathClass> cells_of(std::string_view word) {
  if (const auto one = PathClass::parse(word)) return {*one};
  std::vector<PathClass> out;
  while (!word.empty()) {
    std::size_t length = 0;
    for (const std::string_view name : {"PIX", "PXB", "PHB", "NODE", "SYS", "X"}) {
      if (word.starts_with(name)) length = name.size();
    }
    if (word.starts_with("NV")) {
      length = 2;
      while (length < word.size() && word[length] >= '0' && word[length] <= '9') ++length;
    }
    const auto cell = length > 0 ? PathClass::parse(word.substr(0, length)) : std::nullopt;
    if (!cell) return {};
    out.push_back(*cell);
    word.remove_prefix(length);
  }
  return out;
}

struct Row {
  std::string name;
  std::vector<PathClass> cells;   // those that could be read, in column order
  std::vector<std::string> rest;  // affinity columns, none empty
  std::size_t line = 0;
};

class MatrixReader {
 public:
  MatrixReader(std::string_view content, const std::string& name, std::size_t first_line)
      : content_(content), name_(name), first_line_(first_line) {}

  Result<Machine> read() {
    if (content_.size() > kMaxMatrixBytes) {
      return Status(ErrorCode::out_of_range, fmt::format("{}: {} bytes are no matrix", name_, content_.size()));
    }
    if (auto status = read_lines(); !status) return status;
    if (auto status = build(); !status) return status;
    complete(machine_);
    if (auto status = validate(machine_); !status) return status.with_context(name_);
    return std::move(machine_);
  }

 private:
  [[nodiscard]] Status error(std::size_t line, std::string_view what) const {
    return {ErrorCode::invalid_argument, fmt::format("{}:{}: {}", name_, line, what)};
  }

  Status read_lines() {
    std::size_t number = first_line_ - 1;
    bool ended = false;
    const auto all = text::lines(content_);
    for (const auto raw : all) {
      ++number;
      last_line_ = number == all.size() + first_line_ - 1 && !content_.ends_with('\n');
      const auto line = text::without_escapes(raw);  // nvidia-smi underlines its heading on a terminal
      const auto words = text::words(line);
      if (words.empty()) {
        ended = ended || !rows_.empty();
        continue;
      }
      if (columns_.empty()) {
        if (numbered(words[0], "GPU") && (words.size() == 1 || !PathClass::parse(words[1]))) {
          if (auto status = read_heading(words, number); !status) return status;
        }
        continue;
      }
      if (read_legend(words)) continue;
      if (ended || words[0].ends_with(':')) continue;
      if (auto status = read_row(words, number); !status) return status;
    }
    if (columns_.empty())
      return error(first_line_, "no heading line that starts with GPU0: not the output of nvidia-smi topo -m");
    if (rows_.empty()) return error(number, "the matrix has a heading and no rows");
    return {};
  }

  Status read_heading(const std::vector<std::string_view>& words, std::size_t line) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      // "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"; a capture may cut them anywhere.
      if (words[i] == "CPU" || words[i] == "NUMA" || words[i] == "GPU" || words[i] == "Affinity" || words[i] == "ID") {
        for (; i < words.size(); ++i) {
          has_cpu_ = has_cpu_ || words[i] == "CPU";
          has_numa_ = has_numa_ || (words[i] == "NUMA" && words[i - 1] != "GPU");
        }
        break;
      }
      // "C", "CP" of a capture that ends within them
      if (i > 0 && i + 1 == words.size() && std::string_view("CPU").starts_with(words[i])) break;
      const auto name = text::quote(words[i]);
      if (std::ranges::find(columns_, name) != columns_.end()) {
        return error(line, fmt::format("column {} appears twice", name));
      }
      columns_.push_back(name);
      if (columns_.size() > kMaxEnds) return error(line, fmt::format("more than {} columns", kMaxEnds));
    }
    return {};
  }

  // "NIC0: mlx5_bond_0"
  bool read_legend(const std::vector<std::string_view>& words) {
    if (words.size() != 2 || !words[0].ends_with(':')) return false;
    const auto name = words[0].substr(0, words[0].size() - 1);
    if (!numbered(name, "NIC")) return false;
    legend_[std::string(name)] = text::quote(words[1]);
    return true;
  }

  Status read_row(const std::vector<std::string_view>& words, std::size_t line) {
    Row row;
    row.line = line;
    row.name = text::quote(words[0]);
    const bool a_column = std::ranges::find(columns_, row.name) != columns_.end();
    const bool an_end = numbered(row.name, "GPU") || numbered(row.name, "NIC");
    if (!a_column && !an_end) {
      add_note(machine_, NoteKind::remark, fmt::format("{}:{}", name_, line),
               fmt::format("\"{}\" heads no column: the line was left out", row.name));
      return {};
    }
    for (const auto& known : rows_) {
      if (known.name == row.name) return error(line, fmt::format("row {} appears twice", row.name));
    }
    std::size_t i = 1;
    for (; i < words.size() && row.cells.size() < columns_.size(); ++i) {
      // The capture may end inside a word: "NV1" may have been NV18.
      const bool cut_off = last_line_ && i + 1 == words.size() && i < columns_.size();
      const auto cells = cells_of(words[i]);
      if (cut_off) i = words.size();
      if (cells.empty() || row.cells.size() + cells.size() > columns_.size() || cut_off) break;
      if (cells.size() > 1) glued_ = true;
      row.cells.insert(row.cells.end(), cells.begin(), cells.end());
    }
    if (row.cells.size() < columns_.size() && i < words.size()) {
      return error(line, fmt::format("\"{}\" is no path class (cell {} of row {})", text::quote(words[i]),
                                     row.cells.size() + 1, row.name));
    }
    for (; i < words.size(); ++i) {
      if (!PathClass::parse(words[i])) row.rest.push_back(text::quote(words[i], 2000));
    }
    rows_.push_back(std::move(row));
    if (rows_.size() > kMaxEnds) return error(line, fmt::format("more than {} rows", kMaxEnds));
    return {};
  }

  Status build() {
    machine_.name = std::string(name_.substr(name_.rfind('/') + 1));
    auto names = columns_;
    for (const auto& row : rows_) {
      if (std::ranges::find(names, row.name) == names.end()) names.push_back(row.name);
    }
    machine_.matrix.source = kMatrix;
    for (const auto& name : names) machine_.matrix.ends.push_back(make_end(name));
    const auto n = names.size();
    machine_.matrix.cells.assign(n * n, {});
    std::size_t missing = 0;
    for (std::size_t r = 0; r < n; ++r) {
      machine_.matrix.cells[r * n + r] = {PathKind::self, 0};
      const auto row = std::ranges::find(rows_, names[r], &Row::name);
      const auto cells = row == rows_.end() ? 0 : row->cells.size();
      for (std::size_t c = 0; c < cells; ++c) {
        const auto& cell = row->cells[c];
        if ((cell.kind == PathKind::self) != (r == c)) {
          return error(row->line,
                       fmt::format("X stands between {} and {}: the columns are shifted", row->name, columns_[c]));
        }
        machine_.matrix.cells[r * n + c] = cell;
      }
      missing += n - cells;
    }
    if (missing > 0) {
      add_note(
          machine_, NoteKind::unknown, name_,
          fmt::format("the capture is cut off: {} of {} cells are missing; the other half of the matrix stands for "
                      "those it shows",
                      missing, n * n));
    }
    if (glued_)
      add_note(machine_, NoteKind::inferred, name_,
               "cells without a blank between them were taken apart: NODENODE is two");
    for (const auto& row : rows_) read_affinity(row);
    add_note(machine_, NoteKind::unknown, "",
             "the matrix gives classes only: bus ids, switches, link rates and NIC rates stay unknown");
    return check_symmetry(names);
  }

  Status check_symmetry(const std::vector<std::string>& names) {
    const auto n = names.size();
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = r + 1; c < n; ++c) {
        const auto& a = machine_.matrix.cells[r * n + c];
        const auto& b = machine_.matrix.cells[c * n + r];
        if (a == b || a.kind == PathKind::unknown || b.kind == PathKind::unknown) continue;
        add_note(machine_, NoteKind::conflict, name_,
                 fmt::format("{} to {} is {} and back {}: the first is kept", names[r], names[c], a.to_string(),
                             b.to_string()));
      }
    }
    return {};
  }

  NodeRef make_end(const std::string& name) {
    if (const auto ordinal = numbered(name, "GPU")) {
      Gpu gpu;
      gpu.ordinal = *ordinal;
      gpu.vendor.set("NVIDIA", kMatrix);
      machine_.gpus.push_back(std::move(gpu));
      // Ordinals rise along the heading; complete() keeps that order.
      return {NodeKind::gpu, static_cast<std::uint32_t>(machine_.gpus.size() - 1)};
    }
    Nic nic;
    const auto written = legend_.find(name);
    nic.name = written != legend_.end() ? written->second : name;
    if (!numbered(nic.name, "NIC")) {
      RdmaDevice rdma;
      rdma.name = nic.name;
      nic.rdma = Ref<RdmaDevice>(machine_.rdma.size());
      machine_.rdma.push_back(std::move(rdma));
    }
    machine_.nics.push_back(std::move(nic));
    return {NodeKind::nic, static_cast<std::uint32_t>(machine_.nics.size() - 1)};
  }

  void read_affinity(const Row& row) {
    const auto ordinal = numbered(row.name, "GPU");
    const auto ref = ordinal ? find_gpu(machine_, *ordinal) : Ref<Gpu>{};
    if (!ref || row.rest.empty()) return;
    auto& gpu = machine_.gpus[ref.index];
    std::size_t next = 0;
    if (has_cpu_) {
      const auto cpus = row.rest[0] == "N/A" ? std::nullopt : CpuSet::parse_list(row.rest[0]);
      if (cpus && !cpus->empty()) gpu.cpus.set(*cpus, kMatrix);
      if (!cpus && row.rest[0] != "N/A") {
        add_note(machine_, NoteKind::unreadable, fmt::format("{}:{}", name_, row.line),
                 fmt::format("CPU affinity \"{}\" of {} is no CPU list", text::quote(row.rest[0]), row.name));
      }
      next = 1;
    }
    if (!has_numa_ || next >= row.rest.size()) return;
    auto os_index = text::to_u32(row.rest[next]);
    // Where the memory of GPUs is NUMA nodes too (Grace), the list begins with the CPU's.
    // The column of its own may say N/A: "0,2-17" is the CPU's and those that its GPUs reserve, eight for each.
    const auto nodes = os_index ? std::nullopt : CpuSet::parse_list(row.rest[next]);
    const bool coherent =
        (next + 1 < row.rest.size() && text::to_u32(row.rest[next + 1])) ||
        (nodes && nodes->ranges().size() > 1 && nodes->ranges().front().first == nodes->ranges().front().last &&
         nodes->ranges()[1].last - nodes->ranges()[1].first >= 7);
    if (coherent && nodes && !nodes->empty()) os_index = nodes->ranges().front().first;
    if (!os_index || *os_index > 4095) {
      add_note(machine_, NoteKind::unknown, row.name,
               fmt::format("NUMA affinity \"{}\" names no single node", row.rest[next]));
      return;
    }
    gpu.numa_node.set(*os_index, kMatrix);
    auto node = find_numa(machine_, *os_index);
    if (!node) {
      machine_.numa_nodes.emplace_back();
      machine_.numa_nodes.back().os_index = *os_index;
      node = Ref<NumaNode>(machine_.numa_nodes.size() - 1);
    }
    if (coherent) add_c2c(ref, node);
    if (gpu.cpus && !machine_.numa_nodes[node.index].cpus.learn(*gpu.cpus, kMatrix)) {
      add_note(machine_, NoteKind::conflict, row.name,
               fmt::format("NUMA node {} has other CPUs here than at a GPU before: the first are kept", *os_index));
    }
  }

  // Only GPUs beside a Grace CPU have their memory as a NUMA node. GH200, GB200 and GB300 have one rate.
  void add_c2c(Ref<Gpu> gpu, Ref<NumaNode> node) {
    auto& link = machine_.links.emplace_back();
    link.kind = LinkKind::c2c;
    link.a = {NodeKind::gpu, gpu.index};
    link.b = {NodeKind::numa_node, node.index};
    link.count.set(1, Source::derived);
    if (const auto gbs = catalogue_link_gbs(LinkKind::c2c, 0, "GB200")) link.gbs_per_link.set(*gbs, Source::catalogue);
  }

  std::string_view content_;
  std::string name_;
  std::size_t first_line_;
  Machine machine_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
  std::map<std::string, std::string> legend_;
  bool glued_ = false;
  bool has_cpu_ = false;
  bool has_numa_ = false;
  bool last_line_ = false;  // the current line is the last and has no newline
};

}  // namespace

Result<Machine> read_topo_matrix(std::string_view text, const std::string& name, std::size_t first_line) {
  return MatrixReader(text, name, first_line).read();
}

}  // namespace fairway::topology

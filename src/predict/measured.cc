#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "predict/calibrate.h"

#ifdef FAIRWAY_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

#include "topology/text.h"

namespace fairway::predict {
namespace {

namespace text = topology::text;

constexpr std::size_t kMaxRows = 100000;

// One row's fields by lower-case name, wherever they came from.
struct Fields {
  std::uint32_t line = 0;
  std::map<std::string, std::string> values;

  [[nodiscard]] const std::string* find(const std::string& name) const {
    const auto found = values.find(name);
    return found == values.end() || found->second.empty() ? nullptr : &found->second;
  }
};

// The columns of the rate, best first, with their unit in GB/s.
constexpr auto kFigures = std::to_array<std::pair<std::string_view, double>>({
    {"gbs", 1},
    {"measured_gbs", 1},
    {"average_gbs", 1},
    {"gbps", 1.0 / 8},
    {"measured_gbps", 1.0 / 8},
    {"average_gbps", 1.0 / 8},
    {"peak_gbs", 1},
    {"peak_gbps", 1.0 / 8},
});

class RowReader {
 public:
  RowReader(const topology::Machine& machine, const std::string& name, const MeasuredDefaults& defaults)
      : machine_(machine), name_(name), defaults_(defaults) {}

  Result<MeasuredRow> read(const Fields& fields) const {
    MeasuredRow row;
    row.line = fields.line;
    row.flow.conditions = defaults_.conditions;
    if (auto status = read_figure(fields, row); !status) return status;
    if (auto status = read_conditions(fields, row); !status) return status;
    if (auto status = read_ends(fields, row); !status) return status;
    if (const auto* path = fields.find("path")) {
      row.path = topology::PathClass::parse(*path);
      if (!row.path) return error(fields, fmt::format("path '{}' is none of nvidia-smi's classes", text::quote(*path)));
    }
    return row;
  }

 private:
  Status error(const Fields& fields, std::string_view what) const {
    return {ErrorCode::invalid_argument, fmt::format("{}:{}: {}", name_, fields.line, what)};
  }

  Status read_figure(const Fields& fields, MeasuredRow& row) const {
    for (const auto& [name, unit] : kFigures) {
      const auto* value = fields.find(std::string(name));
      if (value == nullptr) continue;
      const auto number = text::to_double(*value);
      if (!number || !(*number > 0) || *number > 1e6) {
        return error(fields, fmt::format("{} '{}' is no rate above 0", name, text::quote(*value)));
      }
      row.gbs = *number * unit;
      return {};
    }
    return error(fields, "no measured rate: name a column gbs (GB/s) or gbps (Gb/s)");
  }

  Status read_conditions(const Fields& fields, MeasuredRow& row) const {
    auto& how = row.flow.conditions;
    const auto number = [&](const char* name, std::uint32_t most, auto set) -> Status {
      const auto* value = fields.find(name);
      if (value == nullptr) return {};
      const auto n = text::to_u32(*value);
      if (!n || *n == 0 || *n > most) {
        return error(fields, fmt::format("{} '{}' is no number from 1 to {}", name, text::quote(*value), most));
      }
      set(*n);
      return {};
    };
    if (auto status = number("qps", 65536, [&](std::uint32_t n) { how.qps = n; }); !status) return status;
    if (auto status = number("legs", 64, [&](std::uint32_t n) { how.legs = n; }); !status) return status;
    if (auto status = number("mtu", 65536, [&](std::uint32_t n) { how.mtu = n; }); !status) return status;
    if (auto status = number("bytes", 1U << 30U, [&](std::uint32_t n) { how.message_bytes = n; }); !status)
      return status;
    if (auto status = number("outstanding", 65536, [&](std::uint32_t n) { how.outstanding = n; }); !status)
      return status;
    if (const auto* value = fields.find("ordering")) {
      const auto word = text::lower(*value);
      if (word != "relaxed" && word != "strict" && word != "unknown") {
        return error(fields, fmt::format("ordering '{}' is not relaxed, strict or unknown", text::quote(*value)));
      }
      how.ordering = word == "relaxed" ? Ordering::relaxed : word == "strict" ? Ordering::strict : Ordering::unknown;
    }
    if (const auto* value = fields.find("by")) {
      const auto word = text::lower(*value);
      if (word != "kernel" && word != "copy" && word != "cpu" && word != "sockets")
        return error(fields, "by is kernel, copy, cpu or sockets");
      how.by_kernel = word == "kernel";
      how.mover = word == "cpu" ? Mover::cpu : word == "sockets" ? Mover::sockets : Mover::device;
    }
    if (how.mtu && how.mover != Mover::sockets && !is_rdma_mtu(*how.mtu))
      return error(fields, fmt::format("mtu '{}' is none of RDMA's: 256, 512, 1024, 2048, 4096", *how.mtu));
    return {};
  }

  Result<Endpoint> end_of(const Fields& fields, std::string_view prefix, const std::string& value) const {
    const bool bare = text::to_u32(value).has_value();
    auto endpoint = parse_endpoint(machine_, bare ? std::string(prefix) + value : value);
    if (!endpoint) return error(fields, endpoint.status().message());
    return endpoint;
  }

  Status read_ends(const Fields& fields, MeasuredRow& row) const {
    auto& flow = row.flow;
    const auto* from = fields.find("from");
    const auto* to = fields.find("to");
    if (from != nullptr && to != nullptr) {
      const auto a = end_of(fields, "gpu", *from);
      if (!a) return a.status();
      const auto b = end_of(fields, "gpu", *to);
      if (!b) return b.status();
      flow.from = *a;
      flow.to = *b;
      const auto* loop = fields.find("loop");
      if (loop == nullptr) return {};
      const auto nic = end_of(fields, "nic", *loop);
      if (!nic) return nic.status();
      if (nic->kind != EndpointKind::nic) return error(fields, "loop names no NIC");
      flow.loop = nic->index;
      return {};
    }
    const auto* gpu = fields.find("gpu");
    const auto* numa = fields.find("numa");
    if (gpu == nullptr && numa == nullptr) return error(fields, "no ends: name columns from and to, or gpu and nic");
    const auto memory = gpu != nullptr ? end_of(fields, "gpu", *gpu) : end_of(fields, "numa", *numa);
    if (!memory) return memory.status();
    Endpoint port{EndpointKind::nic, defaults_.nic.value_or(0), {}};
    if (const auto* nic = fields.find("nic")) {
      const auto named = end_of(fields, "nic", *nic);
      if (!named) return named.status();
      port = *named;
    } else if (!defaults_.nic) {
      return error(fields, "no NIC: add a column nic, or say which with --nic");
    }
    auto mode = defaults_.mode;
    if (const auto* word = fields.find("mode")) {
      const auto lower = text::lower(*word);
      if (lower != "send" && lower != "receive" && lower != "loop")
        return error(fields, "mode is send, receive or loop");
      mode = lower == "loop" ? RowMode::loop : lower == "receive" ? RowMode::receive : RowMode::send;
    }
    flow.from = mode == RowMode::receive ? port : *memory;
    flow.to = mode == RowMode::send ? port : *memory;
    if (mode == RowMode::loop) flow.loop = port.index;
    return {};
  }

  const topology::Machine& machine_;
  const std::string& name_;
  const MeasuredDefaults& defaults_;
};

Result<std::vector<Fields>> fields_of_csv(std::string_view input, const std::string& name) {
  std::vector<Fields> out;
  std::vector<std::string> header;
  std::uint32_t line_number = 0;
  for (const auto line : text::lines(input)) {
    ++line_number;
    const auto trimmed = text::trim(line);
    if (trimmed.empty() || trimmed.front() == '#') continue;
    const auto cells = text::split(trimmed, ',');
    if (header.empty()) {
      for (const auto cell : cells) header.push_back(text::lower(text::trim(cell)));
      continue;
    }
    if (cells.size() != header.size()) {
      return Status(ErrorCode::invalid_argument, fmt::format("{}:{}: {} fields, where the header has {}", name,
                                                             line_number, cells.size(), header.size()));
    }
    if (out.size() == kMaxRows) {
      return Status(ErrorCode::out_of_range, fmt::format("{}:{}: more than {} rows", name, line_number, kMaxRows));
    }
    auto& fields = out.emplace_back();
    fields.line = line_number;
    for (std::size_t i = 0; i < cells.size(); ++i) fields.values[header[i]] = std::string(text::trim(cells[i]));
  }
  return out;
}

#ifdef FAIRWAY_HAVE_JSON
Result<std::vector<Fields>> fields_of_json(std::string_view input, const std::string& name) {
  const auto bad = [&name](std::string_view what) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: {}", name, what));
  };
  const auto json = nlohmann::json::parse(input, nullptr, false);
  if (json.is_discarded()) return bad("is neither JSON nor a CSV with a header line");
  const nlohmann::json* rows = &json;
  for (const char* key : {"rows", "results"}) {
    if (json.is_object() && json.contains(key)) rows = &json[key];
  }
  if (!rows->is_array()) return bad("holds no list of rows: give a list, or an object with `rows`");
  if (rows->size() > kMaxRows) return bad(fmt::format("has more than {} rows", kMaxRows));
  std::vector<Fields> out;
  for (const auto& row : *rows) {
    Fields fields;
    fields.line = static_cast<std::uint32_t>(out.size() + 1);
    if (!row.is_object()) return bad(fmt::format("row {} is no object", fields.line));
    for (const auto& [key, value] : row.items()) {
      if (value.is_string()) fields.values[text::lower(key)] = value.get<std::string>();
      if (value.is_number()) fields.values[text::lower(key)] = value.dump();
    }
    out.push_back(std::move(fields));
  }
  return out;
}
#else
Result<std::vector<Fields>> fields_of_json(std::string_view, const std::string& name) {
  return Status(ErrorCode::unsupported, fmt::format("{}: this build reads no JSON: give a CSV", name));
}
#endif

}  // namespace

Result<std::vector<MeasuredRow>> read_measured(const topology::Machine& machine, std::string_view input,
                                               const std::string& name, const MeasuredDefaults& defaults) {
  const auto start = text::trim(input);
  const bool json = !start.empty() && (start.front() == '{' || start.front() == '[');
  const auto fields = json ? fields_of_json(input, name) : fields_of_csv(input, name);
  if (!fields) return fields.status();
  if (fields->empty()) {
    return Status(ErrorCode::invalid_argument, fmt::format("{}: holds no rows below a header line", name));
  }
  const RowReader reader(machine, name, defaults);
  std::vector<MeasuredRow> rows;
  rows.reserve(fields->size());
  for (const auto& one : *fields) {
    auto row = reader.read(one);
    if (!row) return row.status();
    rows.push_back(std::move(*row));
  }
  return rows;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::as_expected: return "as expected";
    case Verdict::in_range: return "in range";
    case Verdict::slow: return "slow";
    case Verdict::fast: return "fast";
    case Verdict::unknown: break;
  }
  return "unknown";
}

Result<std::vector<Comparison>> compare(const Model& model, std::span<const MeasuredRow> rows) {
  std::vector<Comparison> out;
  out.reserve(rows.size());
  for (const auto& row : rows) {
    auto prediction = model.predict(row.flow);
    if (!prediction) return prediction.status().with_context(fmt::format("row {}", row.line));
    auto& comparison = out.emplace_back(Comparison{row, std::move(*prediction), 0, 0, Verdict::unknown});
    const auto& gbs = comparison.prediction.gbs;
    if (comparison.prediction.known && gbs.expected > 0) {
      comparison.ratio = row.gbs / gbs.expected;
      comparison.error = std::abs(gbs.expected - row.gbs) / row.gbs;
      // Widen the range by the noise of a measurement.
      comparison.verdict = std::abs(comparison.ratio - 1) <= 0.05 ? Verdict::as_expected
                           : row.gbs < gbs.low * 0.98             ? Verdict::slow
                           : row.gbs > gbs.high * 1.02            ? Verdict::fast
                                                                  : Verdict::in_range;
    }
  }
  return out;
}

double mean_error(std::span<const Comparison> comparisons) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& comparison : comparisons) {
    if (comparison.verdict == Verdict::unknown) continue;
    sum += comparison.error;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace fairway::predict

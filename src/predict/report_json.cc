#include <cmath>

#include <fmt/format.h>

#include "predict/report.h"
#include "topology/devices.h"

namespace fairway::predict {
namespace {

// Writes one JSON value; the caller keeps to the grammar of begin, key and end.
class Json {
 public:
  Json& begin(char bracket) {
    comma();
    out_ += bracket;
    first_ = true;
    return *this;
  }
  Json& end(char bracket) {
    out_ += bracket;
    first_ = false;
    return *this;
  }
  Json& key(std::string_view name) {
    comma();
    out_ += json_string(name) + ": ";
    first_ = true;
    return *this;
  }
  Json& raw(const std::string& value) {
    comma();
    out_ += value;
    return *this;
  }
  Json& text(std::string_view name, std::string_view value) { return key(name).raw(json_string(value)); }
  Json& null(std::string_view name) { return key(name).raw("null"); }
  // Infinite or not a number (a range without an upper end): null.
  Json& number(std::string_view name, double value) {
    return std::isfinite(value) ? key(name).raw(fmt::format("{:.6g}", value)) : null(name);
  }
  // The start of a document: "fairway-predict-<of>".
  Json& document(std::string_view of) {
    return begin('{').text("format", fmt::format("fairway-predict-{}", of)).number("version", 1);
  }
  Json& boolean(std::string_view name, bool value) { return key(name).raw(value ? "true" : "false"); }
  Json& range(std::string_view name, const Range& r) {
    return key(name).begin('{').number("low", r.low).number("expected", r.expected).number("high", r.high).end('}');
  }
  Json& newline() {
    comma();
    out_ += '\n';
    first_ = true;
    return *this;
  }
  [[nodiscard]] std::string finish() { return std::move(out_) + "\n"; }

 private:
  void comma() {
    if (!first_) out_ += ", ";
    first_ = false;
  }
  std::string out_;
  bool first_ = true;
};

void put(Json& json, const Prediction& p) {
  json.text("class", p.path.to_string()).boolean("known", p.known);
  if (p.known) {
    json.range("gbs", p.gbs).range("gbps", p.gbs * 8).text("bottleneck", p.bottleneck);
  } else {
    json.null("gbs").null("gbps").null("bottleneck");
  }
  if (p.known && p.constant)
    json.text("constant", row_of(*p.constant).name);
  else
    json.null("constant");
  json.range("latency_us", p.latency_us).text("sentence", p.sentence).key("notes").begin('[');
  for (const auto& note : p.notes) json.raw(json_string(note));
  json.end(']');
}

void put(Json& json, const topology::Machine& machine, const Flow& flow) {
  json.text("from", to_string(machine, flow.from)).text("to", to_string(machine, flow.to));
  if (flow.loop)
    json.text("loop", machine.nics[*flow.loop].name);
  else
    json.null("loop");
  const auto& how = flow.conditions;
  json.number("qps", how.qps).text("ordering", to_string(how.ordering));
}

std::string_view mode_name(RowMode mode) {
  return mode == RowMode::send ? "send" : mode == RowMode::receive ? "receive" : "loop";
}

// Bytes of the UTF-8 sequence at the start of `s`; 0 if it is invalid.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&s](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U; };
  const auto follows = [&byte](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf && follows(1)) return 2;
  if (first >= 0xe0 && first <= 0xef && follows(1) && follows(2)) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4 && follows(1) && follows(2) && follows(3)) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool beyond = first == 0xf4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

}  // namespace

std::string json_string(std::string_view s) {
  std::string out = "\"";
  while (!s.empty()) {
    const auto length = utf8_length(s);
    const auto c = static_cast<unsigned char>(s.front());
    if (length == 0) {
      out += '?';
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += s.front();
    } else if (c < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += s.substr(0, length);
    }
    s.remove_prefix(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string json_of(const Model& model, const RateMatrix& matrix) {
  const auto& machine = model.machine();
  Json json;
  json.document("matrix").text("machine", machine.name).text("mode", mode_name(matrix.mode));
  json.text("cpu", to_string(model.planner().cpu())).key("cells").begin('[');
  for (std::size_t r = 0; r < matrix.gpus.size(); ++r) {
    for (std::size_t c = 0; c < matrix.nics.size(); ++c) {
      json.newline().begin('{');
      const auto& gpu = machine.gpus[matrix.gpus[r]];
      if (topology::is_numbered(gpu)) json.number("gpu", gpu.ordinal);
      json.text("gpu_name", topology::gpu_name(machine, gpu)).number("nic", matrix.nics[c]);
      json.text("nic_name", machine.nics[matrix.nics[c]].name);
      put(json, matrix.cells[r * matrix.nics.size() + c]);
      json.end('}');
    }
  }
  return json.end(']').end('}').finish();
}

std::string json_of(const Model& model, std::span<const FlowReport> flows, double size_bytes) {
  Json json;
  json.document("flows").text("machine", model.machine().name).key("flows").begin('[');
  for (const auto& [flow, prediction] : flows) {
    json.newline().begin('{');
    put(json, model.machine(), flow);
    put(json, prediction);
    if (size_bytes > 0) json.number("size_bytes", size_bytes).range("seconds", seconds_for(prediction, size_bytes));
    json.end('}');
  }
  return json.end(']').end('}').finish();
}

std::string json_of(const Model& model, const Flow& flow, std::span<const Route> routes) {
  Json json;
  json.document("routes").text("machine", model.machine().name);
  put(json, model.machine(), flow);
  json.key("routes").begin('[');
  for (const auto& route : routes) {
    json.newline().begin('{').text("name", route.name).key("stages").begin('[');
    for (const auto& stage : route.stages) json.raw(json_string(to_string(model.machine(), stage)));
    json.end(']');
    put(json, route.prediction);
    json.end('}');
  }
  return json.end(']').end('}').finish();
}

std::string json_of(const Model& model, std::span<const Comparison> comparisons) {
  Json json;
  json.document("measured")
      .text("machine", model.machine().name)
      .number("mean_absolute_error", mean_error(comparisons));
  json.key("rows").begin('[');
  for (const auto& c : comparisons) {
    json.newline().begin('{').number("line", c.row.line);
    put(json, model.machine(), c.row.flow);
    json.number("measured_gbs", c.row.gbs);
    if (c.prediction.known)
      json.number("ratio", c.ratio).number("error", c.error);
    else
      json.null("ratio").null("error");
    json.text("verdict", to_string(c.verdict));
    put(json, c.prediction);
    json.end('}');
  }
  return json.end(']').end('}').finish();
}

std::string json_of(const Calibration& calibration) {
  Json json;
  json.document("calibration")
      .number("error_before", calibration.error_before)
      .number("error_after", calibration.error_after);
  json.key("constants").begin('[');
  for (const auto& fit : calibration.fits) {
    json.newline().begin('{').text("constant", row_of(fit.id).name).boolean("determined", fit.determined);
    json.range("before", fit.before).range("after", fit.after).text("why", fit.why).end('}');
  }
  return json.end(']').end('}').finish();
}

std::string json_of(const TwoTier& fabric, const FabricOdds& odds) {
  Json json;
  json.document("fabric").number("hosts", fabric.hosts).number("flows_per_host", fabric.flows_per_host);
  json.number("mean", odds.mean).number("p5", odds.p5).number("p50", odds.p50).number("p95", odds.p95);
  json.number("slowest_mean", odds.slowest_mean).number("worst", odds.worst).number("balanced", odds.balanced);
  return json.number("trials", odds.trials).end('}').finish();
}

std::string bond_odds_json(std::uint32_t legs) {
  Json json;
  json.document("bond").number("legs", legs).key("odds").begin('[');
  for (const std::uint32_t qps : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 32U, 64U, 128U}) {
    json.newline().begin('{').number("qps", qps).number("hashed", hashed_share(qps, legs));
    json.number("round_robin", round_robin_share(qps, legs)).end('}');
  }
  return json.end(']').end('}').finish();
}

std::string constants_json(const Constants& constants) {
  Json json;
  json.document("constants").key("constants").begin('[');
  for (const auto& row : constant_table()) {
    json.newline()
        .begin('{')
        .text("name", row.name)
        .text("unit", to_string(row.unit))
        .range("range", constants[row.id]);
    json.boolean("calibrated", constants.is_calibrated(row.id))
        .text("what", row.what)
        .text("source", row.source)
        .end('}');
  }
  return json.end(']').end('}').finish();
}

}  // namespace fairway::predict

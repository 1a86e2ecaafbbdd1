#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/model.h"

namespace fairway::predict {

// The direction of a row (gpu, nic), if the file does not have it.
enum class RowMode : std::uint8_t {
  send,     // from the GPU to the wire
  receive,  // from the wire to the GPU
  loop,     // out and in again through the same NIC
};

struct MeasuredDefaults {
  std::optional<std::uint32_t> nic;  // of rows without one
  RowMode mode = RowMode::send;
  Conditions conditions;
};

struct MeasuredRow {
  std::uint32_t line = 0;  // of the file; of JSON the position in its list, from 1
  Flow flow;
  double gbs = 0;                           // GB/s
  std::optional<topology::PathClass> path;  // as in the file
};

// Reads a CSV with a header line, or JSON: a list of objects, or an object that holds one as `rows` or `results`.
// Fields: from and to (ends as parse_endpoint takes them), or gpu and nic (numbers or names); gbs, measured_gbs,
// average_gbs, peak_gbs in GB/s or the same with gbps in Gb/s; and if wanted loop (a NIC), mode (send, receive, loop),
// path, qps, legs, mtu, ordering, by, bytes (of a message), outstanding. Lines that begin with # are comments. Errors
// name the file, the line and the remedy. JSON is unsupported if the build has no nlohmann-json.
Result<std::vector<MeasuredRow>> read_measured(const topology::Machine& machine, std::string_view text,
                                               const std::string& name, const MeasuredDefaults& defaults);

enum class Verdict : std::uint8_t {
  as_expected,  // within 5 % of what is expected
  in_range,
  slow,  // an outlier below the range
  fast,  // an outlier above it: the model, or the measurement, is wrong
  unknown,
};
std::string_view to_string(Verdict verdict);

struct Comparison {
  MeasuredRow row;
  Prediction prediction;
  double ratio = 0;  // measured / expected
  double error = 0;  // |expected - measured| / measured
  Verdict verdict = Verdict::unknown;
};

// Each row alone against the model.
Result<std::vector<Comparison>> compare(const Model& model, std::span<const MeasuredRow> rows);
// Mean error of the rows whose prediction is known; 0 if there is none.
double mean_error(std::span<const Comparison> comparisons);

}  // namespace fairway::predict

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/model.h"

// Measured rates: as files have them, compared with the model, and the constants that fit them.
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

inline constexpr std::size_t kMaxCalibrationRows = 2000;

// One constant after a calibration by measured rows.
struct Fit {
  ConstantId id = ConstantId::wire_fill;
  Range before;
  Range after;  // as before if it stays undetermined
  bool determined = false;
  std::vector<std::uint32_t> rows;  // lines of the rows that it decides; if undetermined, of the rows whose path has it
  std::string why;                  // one sentence
};

struct Calibration {
  Constants constants;
  std::vector<Fit> fits;
  double error_before = 0;  // mean over the rows
  double error_after = 0;
};

// Fits constants to the rows: least squares of the logarithms, with a penalty for leaving the middle of a constant's
// range, weaker the wider the range is. A constant that decides no row keeps its value and is listed as undetermined.
// At least one row needs a known prediction.
Result<Calibration> calibrate(const Model& model, std::span<const MeasuredRow> rows);

// The calibration file: a line for each determined constant. `machine` is the machine's name.
std::string write_calibration(const Calibration& calibration, std::string_view machine);
// Errors name the file and the line.
Result<Constants> read_calibration(std::string_view text, const std::string& name);
// The path of the calibration that belongs to a machine's file: beside it.
std::string calibration_path(std::string_view machine_path);

}  // namespace fairway::predict

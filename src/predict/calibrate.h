#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

#include "predict/measured.h"

namespace fairway::predict {

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

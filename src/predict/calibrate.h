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

// What measured rows said about one constant that lies on their ways.
struct Fit {
  ConstantId id = ConstantId::wire_fill;
  Range before;
  Range after;  // as before where it stays undetermined
  bool determined = false;
  std::vector<std::uint32_t> rows;  // lines of those that it decides; where undetermined, those that it lies on
  std::string why;                  // one sentence
};

struct Calibration {
  Constants constants;
  std::vector<Fit> fits;
  double error_before = 0;  // mean over the rows
  double error_after = 0;
};

// Finds the constants that explain the rows best while staying where their ranges allow: least squares of the
// logarithms, each constant held to its range's middle as loosely as the range is wide. A constant that decides no row
// is left as it was and listed as undetermined. Needs rows of which at least one has a known prediction.
Result<Calibration> calibrate(const Model& model, std::span<const MeasuredRow> rows);

// What is kept beside a machine's file: a line for each determined constant. `machine` is the machine's name.
std::string write_calibration(const Calibration& calibration, std::string_view machine);
// Errors name the file and the line.
Result<Constants> read_calibration(std::string_view text, const std::string& name);
// Where the calibration of a machine's file is kept: beside it.
std::string calibration_path(std::string_view machine_path);

}  // namespace fairway::predict

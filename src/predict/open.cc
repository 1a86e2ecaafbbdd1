#include "predict/open.h"

#include <fmt/format.h>

#include "predict/calibrate.h"
#include "topology/discover.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::predict {

namespace text = topology::text;

namespace {

constexpr std::size_t kMaxCalibrationBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxSnapshotBytes = std::size_t{33} << 20;

Result<topology::Machine> machine_of(const std::string& path) {
  if (path.empty()) {
    topology::DiscoverOptions options;
    options.use_verbs = false;  // queue limits do not affect rates
    return topology::discover(options);
  }
  const auto input = topology::read_input(path, kMaxSnapshotBytes);
  if (!input) return input.status();
  if (!text::trim(*input).starts_with('{'))
    return Status(ErrorCode::unsupported,
                  path + ": not a Fairway snapshot; `fairway topo snapshot FILE --from " + path + "` makes one of it");
  return topology::read_snapshot(*input, topology::input_name(path));
}

}  // namespace

Result<Constants> constants_from(const std::string& calibration_path) {
  const auto input = topology::read_file(calibration_path, kMaxCalibrationBytes);
  if (!input) return input.status();
  return read_calibration(*input, calibration_path);
}

Result<Constants> constants_beside(const std::string& machine_path, std::string* found) {
  const std::string path = machine_path.empty() ? "" : calibration_path(machine_path);
  if (path.empty() || !topology::exists(path)) return Constants();
  if (found != nullptr) *found = path;
  return constants_from(path);
}

Result<Model> open_model(const std::string& path) {
  auto machine = machine_of(path);
  if (!machine) return machine.status();
  auto constants = constants_beside(path);
  if (!constants) return constants.status();
  return Model(std::move(*machine), *constants);
}

// The file of a calibration.
std::string write_calibration(const Calibration& calibration, std::string_view machine) {
  std::string out = fmt::format("# fairway calibration 1 of {}\n# error of its rows: {:.1f} % before, {:.1f} % after\n",
                                text::quote(machine), 100 * calibration.error_before, 100 * calibration.error_after);
  out += "constant,low,expected,high\n";
  for (const auto& fit : calibration.fits) {
    if (!fit.determined) continue;
    out += fmt::format("{},{:.6g},{:.6g},{:.6g}\n", row_of(fit.id).name, fit.after.low, fit.after.expected,
                       fit.after.high);
  }
  return out;
}

Result<Constants> read_calibration(std::string_view input, const std::string& name) {
  Constants constants;
  std::uint32_t number = 0;
  bool header = false;
  for (const auto line : text::lines(input)) {
    ++number;
    const auto bad = [&](std::string_view what) {
      return Status(ErrorCode::invalid_argument, fmt::format("{}:{}: {}; calibrate again", name, number, what));
    };
    const auto trimmed = text::trim(line);
    if (number == 1 && !trimmed.starts_with("# fairway calibration 1")) return bad("is no calibration of this version");
    if (trimmed.empty() || trimmed.front() == '#') continue;
    if (!header) {
      if (trimmed != "constant,low,expected,high") return bad("the header is missing");
      header = true;
      continue;
    }
    const auto cells = text::split(trimmed, ',');
    if (cells.size() != 4) return bad("a line has four fields");
    const auto id = constant_from(text::trim(cells[0]));
    if (!id) return bad(fmt::format("there is no constant '{}'", text::quote(cells[0])));
    const auto low = text::to_double(text::trim(cells[1]));
    const auto expected = text::to_double(text::trim(cells[2]));
    const auto high = text::to_double(text::trim(cells[3]));
    if (!low || !expected || !high || !(0 < *low && *low <= *expected && *expected <= *high)) {
      return bad("needs 0 < low <= expected <= high");
    }
    constants.set(*id, {*low, *expected, *high});
  }
  if (!header)
    return Status(ErrorCode::invalid_argument, fmt::format("{}: holds no calibration; calibrate again", name));
  return constants;
}

std::string calibration_path(std::string_view machine_path) {
  while (machine_path.size() > 1 && machine_path.ends_with('/')) machine_path.remove_suffix(1);
  return std::string(machine_path) + ".calibration";
}

}  // namespace fairway::predict

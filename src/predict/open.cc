#include "predict/open.h"

#include "predict/calibrate.h"
#include "topology/discover.h"
#include "topology/file.h"
#include "topology/load.h"
#include "topology/text.h"

namespace fairway::predict {

namespace {

constexpr std::size_t kMaxCalibrationBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxSnapshotBytes = std::size_t{33} << 20;

Result<topology::Machine> machine_of(const std::string& path) {
  if (path.empty()) {
    topology::DiscoverOptions options;
    options.use_verbs = false;  // queue limits do not affect rates
    return topology::discover(options);
  }
  const auto text = topology::read_input(path, kMaxSnapshotBytes);
  if (!text) return text.status();
  if (!topology::text::trim(*text).starts_with('{'))
    return Status(ErrorCode::unsupported,
                  path + ": not a Fairway snapshot; `fairway topo snapshot FILE --from " + path + "` makes one of it");
  return topology::read_snapshot(*text, topology::input_name(path));
}

}  // namespace

Result<Constants> constants_from(const std::string& calibration_path) {
  const auto text = topology::read_file(calibration_path, kMaxCalibrationBytes);
  if (!text) return text.status();
  return read_calibration(*text, calibration_path);
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

}  // namespace fairway::predict

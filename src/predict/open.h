#pragma once

#include <string>

#include "fairway/status.h"

#include "predict/model.h"

namespace fairway::predict {

// The model of this machine (`path` empty) or of a snapshot, with the calibration beside that file if there is one.
// Takes up to a second. Any thread.
Result<Model> open_model(const std::string& path);

Result<Constants> constants_from(const std::string& calibration_path);
// The calibration beside the machine's file, else the table's constants. `found`, unless null, gets its path or stays
// empty.
Result<Constants> constants_beside(const std::string& machine_path, std::string* found = nullptr);

}  // namespace fairway::predict

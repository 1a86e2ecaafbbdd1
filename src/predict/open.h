#pragma once

#include <string>

#include "fairway/status.h"

#include "predict/model.h"

namespace fairway::predict {

// The model of this machine (`path` empty), or of one in a file that `fairway topo` reads; with the calibration that
// lies beside the file, where one does. Takes up to a second. Any thread.
Result<Model> open_model(const std::string& path);

Result<Constants> constants_from(const std::string& calibration_path);
// The calibration beside the machine's file; the table's own constants where there is none. `found`, unless null, gets
// its path or stays empty.
Result<Constants> constants_beside(const std::string& machine_path, std::string* found = nullptr);

}  // namespace fairway::predict

#pragma once

#include <string>

namespace fairway::doctor {

// Whether one of ethtool's statistics says what a port dropped or lost.
bool is_statistic_of_interest(const std::string& name);

}  // namespace fairway::doctor

#pragma once

#include <string>
#include <vector>

#include "bench/rows.h"
#include "case.h"

namespace fairway::tool::bench {

// Each case with a peer process of its own, or all with the one at `address`; beside its roof where both are here and
// poll. An error where a row took another path than its case forces.
Status measure(Meter& meter, const std::string& address, const Plan& plan, const std::vector<Case>& cases,
               const OnRow& on_row);

}  // namespace fairway::tool::bench

#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "fairway/engine.h"

#include "core/runtime.h"
#include "engine/expectation.h"
#include "engine/tables/any_receives.h"
#include "engine/tables/completions.h"
#include "engine/tables/mappings.h"
#include "engine/tables/notify.h"
#include "engine/tables/peer_table.h"
#include "engine/tables/transfer.h"
#include "transport/region_table.h"

namespace fairway::engine {

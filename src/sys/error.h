#pragma once

#include <string_view>

#include "fairway/status.h"

namespace fairway::sys {

// What the system refused, as "what: system's text[: remedy]". Of a connection, ErrorCode::unreachable means that the
// other host answered and nothing listens there (refused); a path that may come back (reset, no route, no answer) is
// link_failed.
Status system_status(int error, std::string_view what);

}  // namespace fairway::sys

#pragma once

#include <string_view>

#include "fairway/status.h"

namespace fairway::sys {

// A Status for a failed system call: "what: system's text[: remedy]". For connections: ErrorCode::unreachable means
// that the other host answered and nothing listens there (refused); link_failed means that the path may come back
// (reset, no route, no answer).
Status system_status(int error, std::string_view what);

}  // namespace fairway::sys

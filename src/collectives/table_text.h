#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/status.h"

// The frame of a table that is kept in a file: what it is and its format, of which machine, rows, and a sum of all.
// Pure.
namespace fairway::collectives {

// `what`: "fairway: ways of collectives on streams". `rows`: lines.
[[nodiscard]] std::string framed(std::string_view what, int format, const std::string& key, const std::string& rows);
// Its rows. Errors say why it cannot be used: it is no such table, of another format, cut or damaged, or of another
// machine (`key`).
[[nodiscard]] Result<std::vector<std::string>> rows_in(const std::string& text, std::string_view what, int format,
                                                       const std::string& key);
[[nodiscard]] inline Status unusable(const std::string& why) {
  return {ErrorCode::protocol_error, why};
}

}  // namespace fairway::collectives

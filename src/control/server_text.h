#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace fairway::control {

// What a server says, as part of an error: one short line of plain characters, whatever it sent.
inline std::string server_text(std::string_view said) {
  constexpr std::size_t kMost = 200;
  std::string text(said.substr(0, kMost));
  std::replace_if(
      text.begin(), text.end(), [](char each) { return each < 32 || each > 126; }, '?');
  return said.size() > kMost ? text + "..." : text;
}

}  // namespace fairway::control

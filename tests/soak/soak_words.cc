#include "soak_words.h"

#include <sstream>

#include <fmt/format.h>

namespace fairway::tool::soak {

std::string line_of(const Said& said) {
  const Ended& ended = said.ended;
  std::string words = ended.words;
  for (char& c : words)
    if (c == '\n') c = ' ';
  return fmt::format("{} {} {} {} {} {} {} {}\n", said.step, static_cast<int>(ended.code),
                     static_cast<int>(ended.effect), ended.far ? static_cast<int>(*ended.far) : -1, ended.bytes,
                     ended.old_value, ended.nanoseconds, words);
}

Said said_of(const std::string& line) {
  std::istringstream words(line);
  Said said;
  int code = 0, effect = 0, far = -1;
  words >> said.step >> code >> effect >> far >> said.ended.bytes >> said.ended.old_value >> said.ended.nanoseconds;
  said.ended.code = static_cast<ErrorCode>(code);
  said.ended.effect = static_cast<Effect>(effect);
  if (far >= 0) said.ended.far = static_cast<Cancelled::Far>(far);
  std::getline(words >> std::ws, said.ended.words);
  return said;
}

}  // namespace fairway::tool::soak

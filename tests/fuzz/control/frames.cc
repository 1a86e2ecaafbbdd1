#include <cstdint>
#include <cstdlib>

#include "control/frame.h"

// A stream of frames in front of which the input stands, or in the middle of which it replaces bytes: nothing that was
// not sealed is ever believed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairway::control;
  static Hmac hmac;
  const Mac key{};
  std::size_t used = 0;

  Opener raw(key);
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size));
  while (true) {
    const auto frame = raw.open(hmac, rest, used);
    if (!frame || !frame.value()) break;
    std::abort();  // nobody guesses a tag of 16 bytes
  }

  if (size < 2) return 0;
  std::vector<std::byte> stream;
  Sealer sealer(key);
  const std::array<std::byte, 24> body{};
  for (int i = 0; i < 3; ++i)
    if (!sealer.seal(hmac, FrameType::message, body, stream)) return 0;
  const std::size_t frame_size = stream.size() / 3;
  const std::size_t at = data[0] % stream.size();
  const std::size_t length = std::min(size - 1, stream.size() - at);
  bool changed = false;
  for (std::size_t i = 0; i < length; ++i) {
    changed = changed || stream[at + i] != static_cast<std::byte>(data[1 + i]);
    stream[at + i] = static_cast<std::byte>(data[1 + i]);
  }
  Opener opener(key);
  std::size_t frames = 0;
  rest = stream;
  while (true) {
    const auto frame = opener.open(hmac, rest, used);
    if (!frame || !frame.value()) break;
    rest = rest.subspan(used);
    ++frames;
  }
  if (frames < at / frame_size || (changed && frames == 3) || (!changed && frames != 3)) std::abort();
  return 0;
}

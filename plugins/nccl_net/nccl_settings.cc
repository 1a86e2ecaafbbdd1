#include "nccl_net/nccl_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

namespace fairway::nccl {
namespace {

// Calls `each` with the parts of `text` between separators.
template <class Each>
void each_part(std::string_view text, char separator, Each each) {
  for (;;) {
    const std::size_t at = text.find(separator);
    each(text.substr(0, at));
    if (at == std::string_view::npos) return;
    text.remove_prefix(at + 1);
  }
}

bool same_word(std::string_view a, std::string_view b) {
  const auto same = [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

std::uint64_t number_of(const Environment& environment, const char* name) {
  const char* text = environment(name);
  std::uint64_t number = 0;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), number);
  return number;
}

}  // namespace

bool names_ll128(std::string_view protocols) {
  bool named = false;
  each_part(protocols, ';', [&](std::string_view list) {
    if (const std::size_t colon = list.find(':'); colon != std::string_view::npos) list.remove_prefix(colon + 1);
    if (list.starts_with('^')) return;
    each_part(list, ',', [&](std::string_view word) { named = named || same_word(word, "LL128"); });
  });
  return named;
}

// NCCL (up to 2.28 at least, sharedNetBuffersInit) computes the size of the buffers that all channels share for sends
// and receives, channels x 16 x NCCL_P2P_NET_CHUNKSIZE, in an int.
std::string too_many_channels(const Environment& environment) {
  constexpr std::uint64_t kSteps = 16, kLimit = std::uint64_t{1} << 31;
  const std::uint64_t chunk = number_of(environment, "NCCL_P2P_NET_CHUNKSIZE");
  const std::uint64_t channels =
      std::max({number_of(environment, "NCCL_MIN_NCHANNELS"), number_of(environment, "NCCL_MIN_CTAS"),
                number_of(environment, "NCCL_MIN_P2P_NCHANNELS")});
  if (chunk == 0 || chunk >= kLimit || channels == 0 || channels >= kLimit || chunk * channels < kLimit / kSteps)
    return {};
  return std::to_string(channels) + " channels with NCCL_P2P_NET_CHUNKSIZE=" + std::to_string(chunk) +
         " overflow a counter of NCCL: its sends and receives will fail with \"out of memory\"; keep channels times "
         "chunk "
         "below 128 MiB";
}

bool logs_information(const Environment& environment) {
  const char* level = environment("NCCL_DEBUG");
  return level != nullptr && (same_word(level, "INFO") || same_word(level, "TRACE"));
}

}  // namespace fairway::nccl

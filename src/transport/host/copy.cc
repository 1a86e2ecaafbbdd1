#include "transport/host/copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace fairway::transport::host {

void copy(std::byte* to, const std::byte* from, std::size_t size, bool streaming) {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  if (streaming && size >= 4 * kLine && (from + size <= to || to + size <= from)) {
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    size -= head;
    for (; size >= kLine; size -= kLine, to += kLine, from += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* target = reinterpret_cast<__m128i*>(to);
      _mm_prefetch(reinterpret_cast<const char*>(from + 8 * kLine), _MM_HINT_T0);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to, from, size);
    _mm_sfence();
    return;
  }
#endif
  static_cast<void>(streaming);
  if (size != 0) std::memmove(to, from, size);
}

}  // namespace fairway::transport::host

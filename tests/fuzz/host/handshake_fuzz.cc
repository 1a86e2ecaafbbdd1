#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/host/handshake.h"

using namespace fairway::transport::host;

// What decodes says the same again, byte for byte; nothing else is accepted, and nothing is read past the end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto message = decode_handshake(bytes)) {
    const auto again = decode_handshake(encode(*message));
    if (!again || again->kind != message->kind || again->socket != message->socket ||
        again->reason != message->reason || again->dialer != message->dialer || again->listener != message->listener)
      std::abort();
  }
  if (const auto note = decode_note(bytes)) {
    const auto again = decode_note(encode(*note));
    const bool text_fits = note->reason.size() <= 256;
    if (!again || again->kind != note->kind || again->file != note->file || again->nonce_at != note->nonce_at ||
        again->attempt != note->attempt || again->region != note->region ||
        (text_fits && again->reason != note->reason))
      std::abort();
  }
  if (const auto key = decode_key(bytes)) {
    const auto again = decode_key(encode(*key));
    if (!again || again->file != key->file || again->offset != key->offset) std::abort();
  }
  return 0;
}

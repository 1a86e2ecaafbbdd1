#include <cstdint>
#include <cstdlib>

#include "control/frame.h"

// Every body's parser; the first byte chooses which. What is accepted can be written and read again as the same bytes.
namespace fairway::control {
namespace {

template <class Body>
void try_body(std::span<const std::byte> bytes) {
  const auto parsed = Body::read(bytes);
  if (!parsed) return;
  std::array<std::byte, kMaxBody> first;
  ByteWriter out(first);
  parsed->write(out);
  if (!out.ok()) std::abort();
  const auto again = Body::read(out.written());
  if (!again) std::abort();
  std::array<std::byte, kMaxBody> second;
  ByteWriter twice(second);
  again->write(twice);
  if (!same(out.written(), twice.written())) std::abort();
}

}  // namespace
}  // namespace fairway::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairway::control;
  if (size == 0 || size > kMaxBody) return 0;
  const auto body = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0]) {
    case 1: try_body<Identity>(body); break;
    case 2: try_body<Accept>(body); break;
    case 3: try_body<Refuse>(body); break;
    case 4: try_body<Message>(body); break;
    case 5: try_body<Ack>(body); break;
    case 6: try_body<Beat>(body); break;
    case 7: try_body<Goodbye>(body); break;
    case 8: try_body<Publish>(body); break;
    case 9: try_body<Withdraw>(body); break;
    case 10: try_body<Lookup>(body); break;
    case 11: try_body<Answer>(body); break;
    default: break;
  }
  return 0;
}

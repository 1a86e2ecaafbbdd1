#include <cstdint>
#include <cstdlib>

#include "control/directory.h"

// Records: as they are, which nobody signed, and signed, as another member of the job might make them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairway::control;
  static JobKey key("the job's key");
  std::string content(reinterpret_cast<const char*>(data), size);
  if (decode_record(key, content, 0)) std::abort();
  const auto mac = key.derive(kRecordProof, {std::as_bytes(std::span(content.data(), content.size()))});
  if (!mac) return 0;
  content.append(reinterpret_cast<const char*>(mac->data()), mac->size());
  const auto record = decode_record(key, content, 0);
  if (!record) return 0;
  const auto again = encode_record(key, record.value());
  if (!again || again.value() != content) std::abort();
  return 0;
}

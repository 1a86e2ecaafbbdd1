#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/cuda/exporter.h"

using namespace fairway::transport::cuda;

// What decodes says the same again; nothing is read past the end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto handle = decode(std::as_bytes(std::span(data, size)));
  if (!handle) return 0;
  const auto again = decode(encode(*handle));
  if (!again || again->by != handle->by || again->base != handle->base || again->size != handle->size ||
      again->process != handle->process || !(again->device == handle->device) ||
      (handle->why.size() <= 300 && again->why != handle->why))
    std::abort();
  return 0;
}

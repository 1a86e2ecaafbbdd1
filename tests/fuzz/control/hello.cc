#include <cstdint>
#include <cstdlib>
#include <random>

#include "control/connection.h"
#include "unit/control/pipe.h"

// What a stranger may send before anything is proven: both ends of a connection, whose nonces are always the same so
// that the search can get past the hello.
namespace fairway::control {
namespace {

class FixedRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override { std::fill(out.begin(), out.end(), std::byte{7}); }
};

void feed(Role role, std::span<const std::byte> bytes) {
  FixedRng rng;
  Wire wire("the job's key", rng);
  auto wires = std::make_shared<Wires>();
  const int ours = role == Role::dialer ? 0 : 1;
  Connection connection(wire, std::make_unique<PipeEnd>(wires, ours), role);
  for (const auto byte : bytes) {
    wires->way[1 - ours].push_back(byte);
    connection.pump();
    // Nobody guesses a proof of 32 bytes.
    if (connection.is_open()) std::abort();
  }
}

}  // namespace
}  // namespace fairway::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairway::control;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.size() > 256) return 0;
  feed(Role::dialer, bytes);
  feed(Role::listener, bytes);
  return 0;
}

#include "control/context.h"

#include <array>

#include "core/bytes.h"

namespace fairway::control {
namespace {

std::uint64_t random_word(Rng& rng) {
  std::array<std::byte, 8> bytes;
  rng.fill(bytes);
  return ByteReader(bytes).get<std::uint64_t>();
}

// The start time in units of 2^30 ns (1.07 s) above 33 random bits. Two incarnations of one engine differ, and so do
// thousands of engines that start together.
std::uint64_t new_incarnation(std::uint64_t unix_ns, Rng& rng) {
  constexpr int kRandomBits = 33;
  const std::uint64_t second = unix_ns >> 30;
  const std::uint64_t mask = (std::uint64_t{1} << kRandomBits) - 1;
  return (second << kRandomBits) | (random_word(rng) & mask) | 1;
}

std::string_view host_of(std::string_view address) {
  return address.substr(0, address.rfind(':'));
}

}  // namespace

ControlContext::ControlContext(const Options& options_in, const Runtime& runtime_in, Observer& observer_in)
    : options(options_in),
      runtime(runtime_in),
      observer(observer_in),
      mailbox(options_in.max_peers, options_in.max_queued_bytes),
      wire(options_in.job_key, runtime_in.rng),
      incarnation(0),
      started_unix_ns(runtime_in.clock.unix_ns()) {
  incarnation = new_incarnation(started_unix_ns, runtime.rng);
}

Identity ControlContext::identity(Intent intent, std::uint64_t session, std::uint64_t received) {
  Identity out;
  out.incarnation = incarnation;
  out.session = session;
  out.received = received;
  out.stamp = next_stamp();
  out.timeout_ms = static_cast<std::uint32_t>(options.peer_timeout / kMillisecond);
  out.intent = intent;
  out.by_caller = options.by_caller;
  out.name = name;
  out.address = address;
  return out;
}

std::uint64_t ControlContext::random_id() {
  return random_word(runtime.rng) | 1;
}

Time ControlContext::jittered(Time delay) {
  return delay / 2 + random_word(runtime.rng) % (delay + 1);
}

std::string reachable_address(const std::string& advertised, const std::string& seen_from) {
  const auto host = host_of(advertised);
  if (host != "0.0.0.0" && host != "[::]") return advertised;
  return std::string(host_of(seen_from)) + advertised.substr(host.size());
}

bool looks_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("localhost:");
}

bool same_incarnation(const PeerInfo& known, const Identity& peer) {
  return known.incarnation == peer.incarnation && known.name == peer.name;
}

}  // namespace fairway::control

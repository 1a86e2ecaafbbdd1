#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/counters.h"
#include "core/time.h"
#include "engine/expectation.h"
#include "engine/tables/route.h"
#include "transport/transport.h"

namespace fairway::engine {

// Checks a link's rate against the rate that the machine model expects. It reports a link that stayed below half of the
// range's low end for three windows in a row, and reports it again only after it has recovered. A window counts only if
// transfers large enough to be rate-bound were in flight throughout. A value; owner: the link's.
class Pace {
 public:
  static constexpr Time kWindow = 50 * kMillisecond;
  static constexpr int kWindows = 3;
  // Shorter transfers, at the expected rate, are bound by latency.
  static constexpr Time kLongEnough = 100 * kMicrosecond;

  struct Slow {
    double reached = 0;  // bytes per second, over the last window
    double least = 0;    // that were expected
  };

  // The least rate expected of a transfer of so many bytes, if any. `least`: the path's.
  static double for_transfer(double least, std::uint64_t bytes) {
    return static_cast<double>(bytes) >= least * static_cast<double>(kLongEnough) / 1e9 ? least : 0;
  }

  // A slice of a transfer with `least` > 0 was posted, and has ended, with so many bytes moved.
  void posted(double least, Time now);
  std::optional<Slow> ended(std::uint64_t bytes, Time now);
  void reset() { *this = {}; }

 private:
  std::uint32_t in_flight_ = 0;
  Time since_ = 0;           // the window's begin
  std::uint64_t bytes_ = 0;  // in the window
  double least_ = 0;         // of the paths used in it
  int slow_ = 0;             // windows in a row
  bool told_ = false;
};

enum class LinkState : std::uint8_t {
  proving,  // up; proof: scratch memory is being written and read back over it
  ready,    // carries data
  closing,  // down; this end is being fenced, or the peer's end has not said that it is
  closed,   // both ends closed the epoch: what was in flight may move. Waits to be reconnected
};

inline constexpr std::size_t kProofBytes = 64;
// Of a link in scratch memory: what the peer writes, what this side sends, what it reads back.
inline constexpr std::size_t kScratchBytes = 3 * kProofBytes;

// What a link should move between a place of the machine and the peer, bytes per second; 0: no figure.
struct PlaceRate {
  std::uint64_t expected = 0, least = 0;
};

// One link of one peer over all its epochs. Owner: the peer's worker; the gauges any thread reads.
struct Link {
  transport::LinkId id;
  std::uint16_t transport = 0;  // index into the worker's
  transport::DeviceIndex device = 0;
  std::uint16_t way = 0;  // as LinkView::way
  bool one_of_way = false;
  std::uint64_t name = 0;  // of this epoch, agreed with the peer
  std::string text;        // "tcp/eth0/1", for people
  const transport::Capabilities* capabilities = nullptr;
  std::uint64_t bytes_per_second = 0;  // of the device; 0: unknown
  std::vector<PlaceRate> rates;        // by Place, where the machine's model is known and has this NIC
  Pace pace;
  Gauge<LinkState> state = LinkState::proving;

  bool closed_here = false;
  bool closed_there = false;
  std::uint64_t immediates_there = 0;  // how many of ours the peer received in the epoch; with closed_there
  Status down_reason;
  Status retry_reason;  // why the last attempt to reconnect failed; ok: none has failed
  Time closing_since = 0;
  Time retry_at = kNever;
  Time backoff = 0;
  Time ready_since = 0;

  Gauge<std::uint32_t> in_flight = 0;  // slices
  std::uint64_t queued_bytes = 0;
  std::uint64_t immediates_posted = 0;
  std::vector<std::uint64_t>
      doubtful_events;  // immediates whose write failed; known at the end of the epoch: whether they used their credits
  std::uint32_t waits_for_streams = 0;  // of these, slices that wait for the caller's stream, with no time limit
  Time last_progress = 0;               // of a slice, or of bytes where those are known, while some are in flight
  std::uint64_t moved = 0;              // bytes, by the last look (transport::TellsProgress)
  // The last epoch moved nothing for peer_timeout, and this one has done nothing since: transfers do not wait for it.
  bool stalled = false;
  std::unique_ptr<transport::Capabilities> careful;  // with shorter slices, once a stall was seen
  Time newest_done = 0;                              // when the latest-posted of the completed slices was posted
  Time look_at = 0;                                  // next check for slices that later ones overtook long ago
  bool full = false;                                 // took fewer than offered; until it makes progress

  std::uint8_t proof_step = 0;
  Time proof_since = kNever;  // it began; by the peer's PeerClock, as the other `since` here
  Time proof_again = kNever;
  std::array<std::byte, kProofBytes> proof_sent{};
  std::array<std::byte, kProofBytes> proof_read{};

  bool echo_owed = false;  // the peer's proof sent an echo, and there was no room for the answer yet
  std::array<std::byte, kProofBytes> echo_answer{};

  Gauge<std::uint64_t> bytes_out, slices, errors, retries, failures;

  [[nodiscard]] bool has(transport::Op op) const {
    return (capabilities->operations & static_cast<std::uint8_t>(op)) != 0;
  }
  [[nodiscard]] std::string why_down() const {
    const char* proof = "its proof is under way";
    const std::string reason = state != LinkState::proving ? down_reason.message()
                               : down_reason               ? proof
                                                           : down_reason.message() + "; " + proof + " again";
    return reason + (retry_reason ? "" : ", and since then " + retry_reason.message());
  }
  [[nodiscard]] bool is_up() const { return state == LinkState::proving || state == LinkState::ready; }
  [[nodiscard]] std::uint32_t free_slots() const {
    return full || in_flight >= capabilities->queue_depth ? 0 : capabilities->queue_depth - in_flight;
  }
  [[nodiscard]] std::uint64_t rate(Place place) const {
    return place < rates.size() && rates[place].expected > 0 ? rates[place].expected : bytes_per_second;
  }
  [[nodiscard]] LinkView view() const {
    return {capabilities, state == LinkState::ready, rate(kAnyNode), queued_bytes, free_slots(), transport, way,
            one_of_way};
  }
};

}  // namespace fairway::engine

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fairway/engine.h"
#include "fairway/memory.h"

#include "sim/fabric.h"
#include "sim/host.h"
#include "sim/simulate.h"
#include "sim/simulation.h"

namespace fairway::sim {

// The test pattern: a byte that depends on its position and the seed.
constexpr std::byte pattern(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t mixed = (position / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
  return static_cast<std::byte>(mixed >> (8 * (position % 8)) ^ position);
}

// A region of a simulated application together with the expected value of every byte. A range is reserved for one
// transfer at a time. Bytes outside reserved ranges must keep their pattern for ever: this detects writes out of bounds
// and writes after a fence. Owned by the campaign.
class Arena {
 public:
  static constexpr std::uint32_t kBlock = 64;
  static constexpr std::uint32_t kMargin = 256;

  Arena(std::uint32_t size, Random& random);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() { return bytes_.data() + kMargin; }
  const std::byte* data() const { return bytes_.data() + kMargin; }
  std::uint32_t size() const { return size_; }

  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t length = 0;  // a multiple of the block size
    std::uint64_t seed = 0;    // seed of its pattern
  };
  // Reserves a range of `length` bytes and fills it with a new pattern. False: no room.
  bool take(std::uint32_t length, Random& random, Range& out);
  // Releases the range and fills it with a new pattern, so that a late write to it is detected.
  void release(Range& range);
  // Releases the range with its current content, which must not change any more.
  void release_as_is(const Range& range);
  // Late writes may still land in the range: it is neither checked nor used again.
  void quarantine(const Range& range);
  // The engine is closed and nothing can write any more: fills the whole arena with a new pattern and checks it again.
  void reclaim();

  // Empty, or the place of a changed byte that belongs to no transfer.
  std::string check() const;
  // The offset of the first byte in the range that differs from the pattern; the range's length when none does.
  std::uint32_t differs(const Range& range) const;

  Region region;          // valid while registered
  bool unusable = false;  // its deregistration was not fenced: neither used nor checked until reclaim()

 private:
  enum class Block : std::uint8_t { free, taken, quarantined };
  void paint(std::uint32_t begin, std::uint32_t length, std::uint64_t seed);

  const std::uint32_t size_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> shadow_;  // expected value of all bytes, guard margins included
  std::vector<Block> blocks_;
  std::uint64_t next_seed_;
};

class Oracle;
struct Job;

inline constexpr std::uint32_t kCounters = 4;        // different immediates of counted notifications
inline constexpr std::uint32_t kMaxJobs = 1u << 12;  // an event's immediate holds the job's number in these bits

// One engine in a campaign: the engine, its memory, and the peers it knows.
struct Application {
  Host* host = nullptr;
  std::size_t place = 0;
  std::string name;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Arena>> arenas;
  struct KnownPeer {
    Application* application = nullptr;
    PeerId peer;
    bool up = false;
    std::vector<RemoteRegion> regions;  // indexed by the peer's arena; id 0: not imported
  };
  std::vector<KnownPeer> known;
  struct PeerChange {
    PeerId peer;
    std::string name;
    bool up = true;
  };
  std::vector<PeerChange> peer_changes;    // peer events from the engine, in order
  std::deque<PeerEvent> unhandled_events;  // those that the application has not handled yet
  EngineOptions options;
  bool dead = false;
  Time disturbed = 0;        // when it was last frozen, thawed or partitioned from a peer
  Time held_until = 0;       // its NICs stall until then
  Time computing_until = 0;  // Progress::caller: it makes no call before then
  bool serve_due = false;    // its loop is scheduled
  KnownPeer* knows(const Application& other);
  [[nodiscard]] bool computes() const { return computing_until > host->simulation().now(); }
  [[nodiscard]] bool runs() const { return engine && !dead && !host->frozen() && !computes(); }
};

// One transfer and what must be true of it. Lives to the end of the campaign, because late frames refer to it.
struct Job {
  Oracle* oracle = nullptr;
  std::uint32_t number = 0;
  Operation operation = Operation::write;
  bool small = false;  // one little piece between the same memories, as its caller may do itself
  Application* from = nullptr;
  Application* to = nullptr;
  PeerId peer;
  Arena* local = nullptr;
  Arena* remote = nullptr;
  Arena::Range local_range, remote_range;  // length 0: released, and used for something else
  struct Piece {
    std::uint32_t local, remote, length;  // offsets within the ranges
  };
  std::vector<Piece> pieces;
  std::uint32_t length = 0;  // of all pieces
  // Borrowed by the request until its completion.
  std::vector<Extent> extents;
  std::vector<std::uint64_t> local_index, remote_index;
  std::vector<std::byte> message;
  NotifyKind notify = NotifyKind::none;
  Deliver deliver = Deliver::to_callback;
  std::uint64_t tag = 0;
  std::uint64_t operand = 0;
  Job* after = nullptr;
  TransferId id;
  bool accepted = false;
  bool completed = false;
  bool cancelled = false;  // cancel() was called
  Status status;
  Time submitted = 0;
  std::uint32_t notified = 0;  // number of its events seen at the target
  std::uint32_t immediate = 0;
  const std::byte* garbled = nullptr;  // the byte of its local memory that the wire corrupts
  bool checksum = false;
  bool settled = false;  // its memory was checked and released
};

// Checks the promises of the engine for all jobs of a campaign as things happen. Failures are collected, not thrown.
class Oracle {
 public:
  Oracle(Simulation& simulation, Fabric& fabric) : simulation_(simulation), fabric_(fabric) {}

  Job& new_job();
  Job& job(std::uint32_t number) { return jobs_[number]; }
  std::deque<Job>& jobs() { return jobs_; }

  // Handles the engine's completion, whichever way it was delivered.
  void completed(Job& job, const Completion& completion);
  static void on_completion(const Completion& completion, void* job);  // usable as a CompletionCallback
  // Fenced: the job's memory is reused at once. Not fenced: it waits for the completion.
  void cancelled(Job& job, const Cancelled& result);
  // deregister() reported fenced: every byte of the arena must keep its current value, even where jobs are undecided.
  void region_is_free(Application& app, Arena& arena);
  // Corrupts a byte of the job's local memory from now on. A checksum must detect it, and must not report anything
  // else.
  void garble(Job& job, std::uint32_t offset);
  void heal(Job& job);
  // Takes and checks all notifications that the engine has.
  void drain_notifications(Application& app);
  // Checks why a peer went down: no engine here breaks the protocol, so no reason may say so.
  void peer_went(const Application& app, const PeerEvent& event);

  // Checks that no byte changed that no transfer may touch, in all memory of the application.
  void check_memory(Application& app);
  // Checks that jobs did not start before the job they follow.
  void check_order();
  // Checks a target's counters: each notification of a successful job counted once, and none that cannot have come.
  void check_counters(Application& app);
  // Checks unexpected_bytes_per_peer: a sender hands over no more than its target has room for. Completes all sends.
  void check_unexpected(Application& app);
  void check_end(std::vector<std::unique_ptr<Application>>& applications);

  void fail(const std::string& what);
  bool failed() const { return failures_ != 0; }
  const std::string& failure() const { return failure_; }

  std::uint32_t accepted = 0;
  std::uint32_t succeeded = 0;
  SimulationCoverage coverage;
  std::array<std::uint32_t, kCounters> counter_values{};

 private:
  void check_moved(Job& job, Arena& source, const Arena::Range& from, Arena& target, const Arena::Range& to);
  void check_mixed(Job& job, const Arena::Range& from, Arena& target, const Arena::Range& to);
  void check_message(Job& job, std::uint64_t bytes);
  void check_sum(Job& job, std::uint64_t old_value);
  void settle_memory(Job& job, const Status& status);
  std::string describe(const Job& job) const;

  Simulation& simulation_;
  Fabric& fabric_;
  std::deque<Job> jobs_;
  std::string failure_;
  std::uint32_t failures_ = 0;
};

}  // namespace fairway::sim

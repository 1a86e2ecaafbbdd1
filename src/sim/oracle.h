#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fairway/engine.h"

#include "sim/arena.h"
#include "sim/fabric.h"
#include "sim/host.h"
#include "sim/simulate.h"

namespace fairway::sim {

class Oracle;
struct Job;

inline constexpr std::uint32_t kCounters = 4;         // different immediates of notifications that are counted
inline constexpr std::uint32_t kMostJobs = 1u << 12;  // an event's immediate names its job in these bits

// One engine's life in a campaign: the engine, its memory, whom it knows.
struct Application {
  Host* host = nullptr;
  std::size_t place = 0;
  std::string name;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Arena>> arenas;
  struct Acquaintance {
    Application* who = nullptr;
    PeerId peer;
    bool up = false;
    std::vector<RemoteRegion> regions;  // by the peer's arena; id 0: not imported
  };
  std::vector<Acquaintance> known;
  struct Sighting {
    PeerId peer;
    std::string name;
    bool up = true;
  };
  std::vector<Sighting> sightings;  // what the engine has said of its peers, as it came
  std::deque<PeerEvent> heard;      // of that, what the application has not acted upon
  EngineOptions options;
  bool dead = false;
  Time disturbed = 0;        // when it was last frozen, thawed or cut off from a peer's control
  Time held_until = 0;       // its NICs sit on what they were given
  Time computing_until = 0;  // of Progress::caller: no call before
  bool serve_due = false;    // its loop runs soon
  Acquaintance* knows(const Application& other);
  [[nodiscard]] bool computes() const { return computing_until > host->simulation().now(); }
  [[nodiscard]] bool runs() const { return engine && !dead && !host->frozen() && !computes(); }
};

// One transfer, and what must be true of it. Lives to the end of the campaign: late things name it.
struct Job {
  Oracle* oracle = nullptr;
  std::uint32_t number = 0;
  Operation operation = Operation::write;
  Application* from = nullptr;
  Application* to = nullptr;
  PeerId peer;
  Arena* local = nullptr;
  Arena* remote = nullptr;
  Arena::Range local_range, remote_range;  // of no length: no longer this job's, and used for something else
  struct Piece {
    std::uint32_t local, remote, length;  // from the beginning of the ranges
  };
  std::vector<Piece> pieces;
  std::uint32_t length = 0;  // of all pieces
  // What the request borrows until completion.
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
  std::uint32_t notified = 0;  // times its event was seen at the target
  std::uint32_t immediate = 0;
  const std::byte* garbled = nullptr;  // the wire changes this byte of its local memory
  bool checksum = false;
  bool settled = false;  // its memory was looked at and is free
};

// What every promise means for the jobs of a campaign, checked as things happen. Failures are collected, not thrown.
class Oracle {
 public:
  Oracle(Simulation& simulation, Fabric& fabric) : simulation_(simulation), fabric_(fabric) {}

  Job& new_job();
  Job& job(std::uint32_t number) { return jobs_[number]; }
  std::deque<Job>& jobs() { return jobs_; }

  // The engine's completion, however it was delivered.
  void completed(Job& job, const Completion& completion);
  static void on_completion(const Completion& completion, void* job);  // as a CompletionCallback
  // Fenced: its memory is used for something else at once. Not fenced: it waits for the completion.
  void cancelled(Job& job, const Cancelled& result);
  // deregister() said fenced: every byte of the arena must stay as it is painted now, also where jobs are still
  // undecided.
  void region_is_free(Application& app, Arena& arena);
  // The wire garbles a byte of the job's local memory from now on; a checksum must tell, and none must tell otherwise.
  void garble(Job& job, std::uint32_t offset);
  void heal(Job& job);
  // Takes what the engine has for its user.
  void drain_notifications(Application& app);
  // An engine's peer went: no engine here ever breaks the protocol, so none may be blamed for that.
  void peer_went(const Application& app, const PeerEvent& event);

  // Anything in any application's memory that nobody may have touched.
  void check_memory(Application& app);
  // Of jobs that wait for another one: that they did not begin.
  void check_order();
  // Of a target: that it counted each notification of the jobs that are ok once, and none that cannot have come.
  void check_counters(Application& app);
  // Of a peer's room for unexpected messages: what its sender handed over of it is no more than that. Ends all sends.
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

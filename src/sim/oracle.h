#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "fairway/engine.h"

#include "sim/arena.h"
#include "sim/host.h"

namespace fairway::sim {

class Oracle;
struct Job;

inline constexpr std::uint32_t kCounters = 4;  // different immediates of notifications that are counted

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
  bool dead = false;
  Time died = 0;
  Acquaintance* knows(const Application& other);
  [[nodiscard]] bool runs() const { return engine && !dead && !host->frozen(); }
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
  Arena::Range local_range, remote_range;
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
  bool bytes_matter = true;  // false once a range was given away otherwise
};

// What every promise means for the jobs of a campaign, checked as things happen. Failures are collected, not thrown.
class Oracle {
 public:
  explicit Oracle(Simulation& simulation) : simulation_(simulation) {}

  Job& new_job();
  Job& job(std::uint32_t number) { return jobs_[number]; }
  std::deque<Job>& jobs() { return jobs_; }

  // The engine's completion, however it was delivered.
  void completed(Job& job, const Completion& completion);
  static void on_completion(const Completion& completion, void* job);  // as a CompletionCallback
  void cancelled(Job& job, const Cancelled& result);
  // deregister() said fenced: every byte of the arena must stay as it is painted now, also where jobs are still
  // undecided.
  void region_is_free(Application& app, Arena& arena);
  // Takes what the engine has for its user.
  void drain_notifications(Application& app);

  // Anything in any application's memory that nobody may have touched.
  void check_memory(Application& app);
  // Of jobs that wait for another one: that they did not begin.
  void check_order();
  // Of a target: that it counted each notification of the jobs that are ok once, and none that cannot have come.
  void check_counters(Application& app);
  void check_end(std::vector<std::unique_ptr<Application>>& applications);

  void fail(const std::string& what);
  bool failed() const { return failures_ != 0; }
  const std::string& failure() const { return failure_; }

  std::uint32_t accepted = 0;
  std::uint32_t succeeded = 0;

 private:
  void check_moved(Job& job, Arena& source, const Arena::Range& from, Arena& target, const Arena::Range& to);
  void check_message(Job& job, std::uint64_t bytes);
  void check_sum(Job& job, std::uint64_t old_value);
  void settle_memory(Job& job, const Status& status);
  std::string describe(const Job& job) const;

  Simulation& simulation_;
  std::deque<Job> jobs_;
  std::string failure_;
  std::uint32_t failures_ = 0;
};

}  // namespace fairway::sim

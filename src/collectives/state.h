#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "collectives/counter_range.h"
#include "collectives/gpu/calls.h"
#include "collectives/host/alarms.h"
#include "collectives/host/census.h"
#include "collectives/host/choose.h"
#include "collectives/host/messages.h"
#include "collectives/host/running.h"
#include "collectives/host/ways.h"
#include "collectives/job/progress.h"

namespace fairway {

// A communicator's insides: the operations that wait their turn, and how the group ends.
struct Communicator::State final : private collectives::GpuCalls::Group {
  // What communicators of one origin share: where the counters of the next one begin, and whether the user has said so;
  // and their engine, where it is theirs.
  struct Family {
    std::uint64_t next_counter = 0;
    bool counters_chosen = false;
    std::shared_ptr<Engine> engine = {};
  };

  // Communicator::create(), over the caller's engine or one that the communicators keep.
  static Result<Communicator> create(Engine& engine, std::shared_ptr<Engine> kept, int rank,
                                     std::span<const std::string> addresses, const CommunicatorOptions& options,
                                     collectives::Time deadline, const std::stop_token& stop);

  State(Engine& engine, std::vector<collectives::Member> members, int rank, const CommunicatorOptions& options,
        std::shared_ptr<Family> shared, collectives::CounterRange own);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Makes a communicator of connected engines: every member calls it. Returns when all have joined. `parent` is the one
  // that it is made of, whose members may have given up before they came here: null, or not over.
  static Result<std::unique_ptr<State>> join(Engine& engine, std::vector<collectives::Member> members, int rank,
                                             CommunicatorOptions options, std::shared_ptr<Family> shared,
                                             collectives::Time deadline, State* parent = nullptr,
                                             const std::stop_token& stop = {});

  static Status moved();  // of a Communicator that was moved from, which has no state

  // ---- operations (operations.cc) ----
  Status run(const Collective& call) override;
  Result<OperationId> start(const Collective& call);
  bool test(OperationId id);
  Status wait(OperationId id);
  [[nodiscard]] Algorithm chosen(const Collective& call) const;
  [[nodiscard]] std::uint64_t piece_of(const Collective& call) const;  // its longest message
  [[nodiscard]] std::string explain(const Collective& call) const;

  // ---- the end of the group ----
  // Looks whether another rank has given up, is gone, or whether the deadline has passed.
  void look(collectives::Running& running, const collectives::Blocked& blocked);
  void fail(collectives::Running& running, const collectives::Fault& fault);
  void fail_by(const collectives::Running& running, const collectives::Fault& fault);  // it is sure who is at fault
  void end(CollectiveFailure why);
  void abort();  // by any thread; hear() then ends the group, on the thread that uses it
  [[nodiscard]] collectives::Alarm own_abort() const;  // what the others hear of it
  // Closed, where the engine is: its memory is gone, and with it every operation. The failure, after abort().
  Status check_open();
  // An alarm of another rank ends the group, once this rank is in that operation: those before it end as they have for
  // the sender.
  Status hear(std::uint64_t operation = ~std::uint64_t{0});
  CollectiveFailure failure_of(const collectives::Alarm& alarm);
  Status look_while_joining();

  [[nodiscard]] int size() const { return lanes.size(); }
  [[nodiscard]] int rank() const { return lanes.rank(); }
  [[nodiscard]] const std::string& name_of(int member) const {
    return lanes.members()[static_cast<std::size_t>(member)].name;
  }
  [[nodiscard]] Timeout timeout_of(std::optional<Timeout> asked) const { return asked.value_or(options.timeout); }

  Engine& engine;
  const CommunicatorOptions options;
  const std::shared_ptr<Family> family;
  const collectives::CounterRange counters;
  std::atomic<bool> aborted{false};
  collectives::Lanes lanes;
  collectives::Alarms alarms;
  collectives::Messages messages;
  collectives::Census census;
  collectives::ProgressFile progress;
  std::vector<int> order, groups;                    // of ranks along hosts and NUMA nodes: host/schedule.h
  collectives::Costs costs = collectives::kNetwork;  // until the members have agreed
  collectives::Near near;                            // ranks that share a host and have mapped each other, of several
  collectives::HostWays ways;                        // what was measured on this machine
  std::uint32_t piece_bytes = 0;                     // the longest message: a slot, or less within a host
  bool sends_in_place = false;                       // long messages, where memory is registered in no time
  std::uint64_t started = 0;                         // operations
  bool joined = false;                               // the others may count on it
  bool agreed = false;                               // all have joined
  State* parent = nullptr;                           // until they have
  std::stop_token stop;                              // the same
  std::atomic<std::uint64_t> last_ended{0};          // operation; abort() reads it
  CollectiveFailure failure;
  collectives::GpuCalls gpu{{*this, engine, lanes, options, started, progress}};  // operations on streams

 private:
  Status may_start() override;
  Status heard() override;
  Status give_up(CollectiveFailure why) override;
  Result<OperationId> enqueue(const Collective& call);
  Result<std::unique_ptr<collectives::Running>> prepare(const Collective& call);
  void step(bool may_wait);  // of the operation whose turn it is
  void begin(collectives::Running& running);
  Status join_members(const std::string& zone, collectives::Time deadline);
  Status agree_on_links(const std::vector<collectives::Words>& words, collectives::Time deadline);
  bool look_before(collectives::Running& running);  // false: the group has ended, or may soon
  void set_deadline(collectives::Running& running, collectives::Time now) const;
  // Of a peer that was lost it is not known at once whether it is dead, or this rank cut off. `doubt_` is set
  // while that is found out, and this rank does nothing else.
  void begin_doubt(collectives::Running& running, const collectives::Fault& fault);
  void look_in_doubt(collectives::Running& running, bool may_wait);
  std::vector<collectives::Hearing> hearings();
  void ask_more();
  void finish_front(const Status& status);
  collectives::Fault deadline_fault(const collectives::Running& running, int waits_for);
  void observe(bool first);
  [[nodiscard]] bool is_waiting(std::uint64_t number) const;

  std::deque<std::unique_ptr<collectives::Running>> queue_;  // the first is the one whose turn it is
  std::deque<std::pair<std::uint64_t, Status>> outcomes_;    // not collected yet
  std::unique_ptr<collectives::Running> spare_;              // ended: the next one is the same, or takes its memory
  unsigned ended_ = 0;                                       // operations, since the engine had its turn
  std::optional<collectives::Alarm> heard_;                  // of an operation that this rank has not come to
  collectives::Time looked_ = {};
  struct Doubt {
    collectives::Fault fault;          // of the lost peer
    collectives::Time until;           // by then every peer that is not heard is known to be lost
    collectives::Time asks_next = {};  // more ranks
    int asked = 0;                     // ranks, those behind this one first
  };
  std::optional<Doubt> doubt_;
  std::vector<collectives::Observed> observed_;
  std::vector<std::uint64_t> observed_steps_;
};

namespace collectives {

Status check_options(const CommunicatorOptions& options);
// Whether the call is well formed; the message names the field.
Status check(const Collective& call, int rank, int size);
// Bytes of an element.
std::size_t width_of(const Collective& call);
// Whether the order of ranks decides how it is combined, and whether in f32.
bool is_ordered(const Collective& call);
bool is_wide(const Collective& call);
// Whether each rank's input is multiplied first, by a factor of its own.
bool is_premul(const Collective& call);
// Whether it ends at each rank apart from the others.
bool is_local(const Collective& call);
// As check() has accepted it, for that algorithm.
Shape shape_of(const Collective& call, Algorithm algorithm, int rank, int size, std::uint64_t piece_bytes);
// Whether its input lies in its output's memory, as Collective describes it.
bool lies_in_place(const Collective& call, int rank, int size);
std::string member_name(int rank, const std::string& address);

}  // namespace collectives
}  // namespace fairway

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/host/lanes.h"

namespace fairway::collectives {

// What a rank tells all others when it gives up an operation, or leaves.
struct Alarm {
  int rank = -1;  // at fault
  std::uint64_t operation = 0;
  ErrorCode code = ErrorCode::ok;
  bool leaves = false;  // the sender leaves the communicator; with `code` ok nothing is wrong
  std::string phase, text;
  bool aborts = false;  // the sender leaves it, and ends it
  int by = -1;          // who found it
};

// One receive from every other rank waits for an alarm. It fails as soon as the engine knows that the rank is gone, so
// a dead rank is noticed by all, whoever waits for it. Owner: a communicator.
class Alarms {
 public:
  Alarms(Lanes& lanes, const std::string& name);
  ~Alarms() { close(); }
  Alarms(const Alarms&) = delete;
  Alarms& operator=(const Alarms&) = delete;

  // resource_exhausted: the engine has too little room for these receives and for a communicator's messages.
  Status open();
  void close();
  // Looks at all receives. Of the alarms that have come and are no farewells, the one of the earliest operation.
  std::optional<Alarm> look();
  // Why that rank takes part no more; ok: it does.
  [[nodiscard]] const Status& gone(int rank) const { return gone_[static_cast<std::size_t>(rank)]; }
  void set_gone(int rank, const Status& why);
  // Tells every other rank, and waits a moment for what it wrote to go.
  void raise(const Alarm& alarm);
  // Tells one rank, and does not wait.
  void pass_on(const Alarm& alarm, int rank);
  // As raise(), once, by any thread, beside one that uses the others.
  void raise_beside(const Alarm& alarm);

 private:
  static constexpr std::size_t kBytes = 512;

  Status check_room();
  // `left`: those that could not be taken back in time: their slot of the engine is collected in close().
  void write(const Alarm& alarm, std::size_t slot);
  void send(const Alarm& alarm, std::size_t slot, const std::vector<int>& to, std::vector<TransferId>& left);
  std::optional<Alarm> arrived(int rank, const Completion& completion);
  [[nodiscard]] PeerId peer(int rank) const { return lanes_.members()[static_cast<std::size_t>(rank)].peer; }

  Lanes& lanes_;
  const std::uint64_t tag_, spare_tag_;
  // A buffer for each rank's alarm; in the own one's place what raise() sends, behind the last what raise_beside()
  // does.
  Region region_;
  std::vector<TransferId> receives_;
  std::vector<TransferId> left_, left_beside_;  // sends of raise() and of raise_beside()
  std::vector<Status> gone_;
};

}  // namespace fairway::collectives

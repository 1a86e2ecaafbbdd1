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

// Who is at fault when an operation's deadline passes, or a rank is lost. Pure.

// What is known of a rank.
struct Observed {
  bool asked = false;           // for its words
  bool answers = false;         // they could be read
  bool gone = false;            // its engine is, or it left
  std::uint64_t operation = 0;  // the newest that it has entered
  bool moves = false;           // its steps grew between two looks
  int waits_for = -1;
};

struct Blame {
  int rank = -1;  // -1: nobody alone
  std::string text;
};

// `names`: of the ranks, as errors show them. `waits_for`: the rank that `self` waits for, -1: none. Who has not come
// is that one and those that are as far back as it; else those that are furthest back: with local completion others
// lag, too, and are not why.
[[nodiscard]] Blame blame(const std::vector<Observed>& ranks, const std::vector<std::string>& names, int self,
                          std::uint64_t operation, int waits_for = -1);

// What is known of a rank when one is lost.
enum class Hearing : std::uint8_t {
  nothing_yet,  // it was asked, and has not answered
  answers,
  lost,     // nothing is heard of it
  lost_us,  // it hears nothing of this rank, and has said so
  left,     // the communicator
};

// `lost`: the rank that this one has lost, or that has lost this one. Either may be cut off; and if this one is, the
// others that it loses live. Nothing: it is not known yet. It is known once another rank answers, or none is left that
// could; or it `is_over`: those that are not lost by then are heard. An empty text: what is known of the lost one.
[[nodiscard]] std::optional<Blame> blame_lost(const std::vector<Hearing>& ranks, const std::vector<std::string>& names,
                                              int self, int lost, bool is_over);

}  // namespace fairway::collectives

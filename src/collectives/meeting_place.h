#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "collectives/clock.h"

namespace fairway::collectives {

// A folder in which the ranks of one host and one job leave their addresses; nobody but their user can open it. A
// value: the files are what counts. Every call that may wait ends at the deadline, or when it is told to stop.
class MeetingPlace {
 public:
  // `base`: where the user's own folder is, or is made; by default in memory. access_denied: that is not the user's
  // alone.
  static Result<MeetingPlace> open(const std::string& job, int rank, Time deadline, std::stop_token stop,
                                   const std::filesystem::path& base = usual_base());
  static std::filesystem::path usual_base();

  // Says that this process is the rank, after clearing away what the dead of an earlier start have left.
  // already_exists: another process is.
  Status enter();
  // What proves that a process is of this job: rank 0's enter() makes it. timed_out: it has not come.
  Result<std::string> key();
  Result<std::vector<std::string>> exchange(int size, const std::string& address);
  void leave();   // this rank has failed
  void remove();  // all have read what they need

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  class Lock;
  MeetingPlace(std::filesystem::path folder, int rank, Time deadline, std::stop_token stop)
      : folder_(std::move(folder)), rank_(rank), deadline_(deadline), stop_(std::move(stop)) {}
  [[nodiscard]] Result<Lock> lock() const;
  void forget(int rank) const;  // with the lock, as the next
  void clear_away_the_dead() const;
  [[nodiscard]] std::filesystem::path file(const char* what, int rank) const;
  [[nodiscard]] Status pause() const;  // timed_out, cancelled

  std::filesystem::path folder_;
  int rank_;
  Time deadline_;
  std::stop_token stop_;
};

}  // namespace fairway::collectives

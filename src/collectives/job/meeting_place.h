#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "fairway/status.h"

#include "collectives/clock.h"
#include "sys/fd.h"

namespace fairway::collectives {

// A folder in which the ranks of one host and one job leave their addresses; nobody but their user can open it. A
// value: the files are what counts. Every call that may wait ends at the deadline, or when it is told to stop.
class MeetingPlace {
 public:
  // `base`: where the user's own folder is, or is made; by default in memory. access_denied: that is not the user's
  // alone.
  static Result<MeetingPlace> open(const std::string& job, int rank, int size, Time deadline, std::stop_token stop,
                                   const std::filesystem::path& base = usual_base());
  static std::filesystem::path usual_base();

  // Says that this process is the rank, after clearing away what the dead of an earlier start have left.
  // already_exists: another process is. invalid_argument: others of the job take it for one of another size.
  Status enter();
  // What proves that a process is of this job: rank 0's enter() makes it. timed_out: it has not come.
  Result<std::string> key();
  Result<std::vector<std::string>> exchange(const std::string& address);
  void leave();   // this rank has failed
  void remove();  // all have read what they need

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  class Lock;
  MeetingPlace(std::filesystem::path folder, int rank, int size, Time deadline, std::stop_token stop)
      : folder_(std::move(folder)), rank_(rank), size_(size), deadline_(deadline), stop_(std::move(stop)) {}
  [[nodiscard]] Result<Lock> lock() const;
  void forget(int rank) const;  // with the lock, as the next
  void clear_away_the_dead() const;
  void clear_away_old_jobs() const;       // what was killed long ago and never started again
  Status claim(const std::string& line);  // its file of this rank, held for as long as this object
  [[nodiscard]] Status check_size() const;
  [[nodiscard]] std::filesystem::path file(const char* what, int rank) const;
  [[nodiscard]] Status pause() const;  // timed_out, cancelled

  std::filesystem::path folder_;
  int rank_, size_;
  Time deadline_;
  std::stop_token stop_;
  std::shared_ptr<sys::Fd> claimed_;  // locked: processes of other PID namespaces see that this one lives
};

}  // namespace fairway::collectives

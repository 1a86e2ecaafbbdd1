#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/collectives.h"
#include "fairway/status.h"

#include "collectives/clock.h"
#include "sys/fd.h"

// Who the ranks of a job are: the one place that reads a launcher's environment.
namespace fairway::collectives {

using Environment = std::map<std::string, std::string, std::less<>>;

// "NAME=value" each, up to a null; null: this process's own.
Environment environment_of(const char* const* lines);
// Of one name; empty: it is not set.
std::string value_of(const Environment& environment, std::string_view name);

// What is asked of the process beside its environment. Tests give their own.
struct Whereabouts {
  std::function<std::string()> host_name;       // "node1"
  std::function<std::string()> full_host_name;  // "pod-0.service.space.svc"
  // What is started in one terminal or by one service has this in common, whatever commands are put in front.
  std::function<std::string()> session;
  // A process above this one whose name begins so, else the parent: its id and when it started, which no other has.
  // Empty: this process cannot see who is above it (a PID namespace of its own).
  std::function<std::string(std::string_view name)> ancestor;
  // Of a file, the first line with anything in it; nothing: it cannot be read.
  std::function<std::optional<std::string>(const std::string& file)> first_line;
};
Whereabouts of_this_process();

// Errors: not_found, where no launcher has left its variables; invalid_argument, which names the variable.
Result<Ranks> detect(const Environment& environment, const Whereabouts& whereabouts);

// Slurm's list of hosts, in its order: "rack[3-5,9],spare" is rack3, rack4, rack5, rack9, spare. At most so many.
std::vector<std::string> hosts_of(std::string_view nodes, std::size_t most = 65536);
// "host:port"; around an IPv6 address go brackets.
std::string host_and_port(const std::string& host, std::string_view port);

// As Linux tells of a process. Where there is none, or it has ended, 'X' and 0.
struct ProcessFacts {
  std::string name;
  char state = 'X';
  int parent = 0;
  std::uint64_t started = 0;
};
ProcessFacts facts_of(int process);
// In which numbers of processes mean what they mean here; 0: unknown.
std::uint64_t process_namespace();

// This host's address on the way to another one, "192.0.2.1" or "[fd00::1]"; empty: there is none. Both within `most`.
std::string own_address(const std::string& towards, Timeout most = std::chrono::seconds(30));
// The same of a host: the first of its addresses to which there is a way, IPv4 first. Behind a name that this host's
// files give to its loopback interface (127.0.1.1) stands this host: then, where `beyond`, its address towards others.
// unreachable, with the resolver's words.
Result<std::string> address_of(const std::string& host, bool beyond = false, Timeout most = std::chrono::seconds(30));

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

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "fairway/collectives.h"

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
  std::function<std::string(std::string_view name)> ancestor;
};
Whereabouts of_this_process();

// Errors: not_found, where no launcher has left its variables; invalid_argument, which names the variable.
Result<Ranks> detect(const Environment& environment, const Whereabouts& whereabouts);

// The first host of Slurm's list: "rack[3-5,9],spare" is rack3 and others.
std::string first_host(std::string_view nodes);

// As Linux tells of a process. Where there is none, or it has ended, 'X' and 0.
struct ProcessFacts {
  std::string name;
  char state = 'X';
  int parent = 0;
  std::uint64_t started = 0;
};
ProcessFacts facts_of(int process);

// This host's address on the way to another one; empty: there is none.
std::string own_address(const std::string& towards);
// "192.0.2.1"; unreachable, with the resolver's words.
Result<std::string> address_of(const std::string& host);

}  // namespace fairway::collectives

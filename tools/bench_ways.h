#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench_case.h"

// The ways to a GPU's memory that --via names beside transports, and the kinds of memory that --memory names.
namespace fairway::tool::bench {

// What a person asked for: each kind of memory by each way.
struct Wanted {
  std::string from, to;          // memories
  std::vector<std::string> via;  // nvlink, pcie, ipc, fd, staged, staged:TRANSPORT, or a transport; empty: any
  std::vector<std::string>
      memory;           // device, managed, pinned, pageable, shared, of the ends that are "gpu:N"; empty: as named
  std::string machine;  // a file that says what joins the GPUs; empty: it is looked at
};
// The cases, a kind of memory after the other. Of several, what contradicts itself, or what this machine does not have,
// is left out and said to `left_out`; where nothing else is asked for that is the error: invalid_argument where the
// words contradict each other.
Result<std::vector<Case>> cases_of(const Wanted& wanted, const std::function<void(const std::string&)>& left_out);

// What an engine is told for such a way to or from that memory ("cuda" for ipc), and what memory that way needs in
// place of it ("gpu:1:mapped" for fd).
std::string transport_of(const std::string& via, const std::string& from, const std::string& to);
std::string memory_of(const std::string& via, const std::string& memory);
// One of those that are ways of the transport `cuda`: nvlink, pcie, ipc, fd.
bool is_rung(const std::string& via);

// An error where the way that was taken, as explain() names it, is not the one that the case forces.
Status check_way(const Case& one, const Row& row);

}  // namespace fairway::tool::bench

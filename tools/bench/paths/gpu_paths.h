#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case.h"

// The paths to a GPU's memory that --via names beside transports, and the kinds of memory of --memory.
namespace fairway::tool::bench {

// The request: each kind of memory over each path.
struct Wanted {
  std::string from, to;          // memories
  std::vector<std::string> via;  // nvlink, pcie, ipc, fd, staged, staged:TRANSPORT, or a transport; empty: any
  std::vector<std::string>
      memory;           // device, managed, pinned, pageable, shared, of the ends that are "gpu:N"; empty: as named
  std::string machine;  // a recording that has the links between GPUs; empty: this machine
};
// The cases, one kind of memory after the other. Impossible combinations, and those that this machine lacks, are
// skipped with a message in `left_out`; if nothing remains that is the error (invalid_argument if the request
// contradicts itself).
Result<std::vector<Case>> cases_of(const Wanted& wanted, const std::function<void(const std::string&)>& left_out);

// The transport for such a path to or from that memory ("cuda" for ipc), and the memory that the path needs
// ("gpu:1:mapped" for fd).
std::string transport_of(const std::string& via, const std::string& from, const std::string& to);
std::string memory_of(const std::string& via, const std::string& memory);
// Whether it is a path of the transport `cuda`: nvlink, pcie, ipc, fd.
bool is_cuda_path(const std::string& via);

// An error if the path that explain() names is not the one that the case forces.
Status check_path(const Case& one, const Row& row);

}  // namespace fairway::tool::bench

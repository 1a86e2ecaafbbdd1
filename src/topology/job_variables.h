#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairway::topology {

struct JobVariable {
  std::string name, value;
};

// The variables of NCCL, UCX and libfabric that a line of a shell, or of a launcher, sets for a job: "NCCL_DEBUG=INFO",
// "export UCX_TLS=rc", "mpirun -x NCCL_IB_HCA=mlx5_0 ./a.out", "docker run -e NCCL_NET=IB".
std::vector<JobVariable> job_variables(std::string_view line);

// The variable that two lines of a pod's YAML set: "- name: NCCL_DEBUG" and "value: INFO".
std::optional<JobVariable> variable_of_yaml(std::string_view line, std::string_view next);

// Whether words begin with a command that programs of jobs are started by, or with a program's path.
bool starts_a_job(std::string_view words);

}  // namespace fairway::topology

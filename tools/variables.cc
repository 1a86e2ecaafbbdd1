#include "variables.h"

namespace fairway::tool {
namespace {

constexpr std::string_view kLibrary = "library", kJobs = "jobs", kNccl = "NCCL plugin", kPython = "Python";

constexpr Variable kVariables[] = {
    {"FAIRWAY_CUDA_DRIVER", kLibrary, "libcuda.so.1", "the CUDA driver's library; /none: no GPU"},
    {"FAIRWAY_LIBFABRIC", kLibrary, "libfabric.so.1", "the library of the transport fabric"},
    {"FAIRWAY_NCCL_LIBRARY", kLibrary, "libnccl.so.2", "NCCL's library, for collectives that NCCL does faster"},
    {"FAIRWAY_NVML", kLibrary, "libnvidia-ml.so.1",
     "NVML's library, asked about GPUs that are hidden from the process"},
    {"FAIRWAY_JOB", kJobs, "the launcher's job", "the job's name, where ranks of one host start by themselves"},
    {"FAIRWAY_JOB_KEY", "jobs, NCCL plugin, Python", "none", "the job's secret; needed beyond one host"},
    {"FAIRWAY_MASTER", kJobs, "rank 0's host", "HOST[:PORT] at which the ranks of a job meet"},
    {"FAIRWAY_LISTEN", "NCCL plugin, Python", "loopback", "the address at which engines listen"},
    {"FAIRWAY_CONNECT_TIMEOUT_MS", kNccl, "30000", "how long connecting to a rank that listens may take"},
    {"FAIRWAY_ENGINES", kNccl, "0: by cores", "engines of each device"},
    {"FAIRWAY_GPU_MEMORY", kNccl, "off", "on: GPU memory goes from GPU to GPU"},
    {"FAIRWAY_INTERFACES", kNccl, "that of FAIRWAY_LISTEN", "interfaces or addresses to use"},
    {"FAIRWAY_JOB_KEY_FILE", kNccl, "none", "a file with the job's secret"},
    {"FAIRWAY_PEER_TIMEOUT_MS", kNccl, "2000", "how long a rank may be silent"},
    {"FAIRWAY_RAILS", kNccl, "none", "interfaces or RDMA ports that are a device each"},
    {"FAIRWAY_RDMA_CM", kNccl, "0", "1: connect RoCE by rdma_cm"},
    {"FAIRWAY_RDMA_DEVICES", kNccl, "all that are up", "RDMA devices or ports to use"},
    {"FAIRWAY_RDMA_GID", kNccl, "the first RoCE v2 GID", "GID index of each port"},
    {"FAIRWAY_RDMA_HOP_LIMIT", kNccl, "64", "hop limit"},
    {"FAIRWAY_RDMA_MTU", kNccl, "what both ports support", "path MTU in bytes"},
    {"FAIRWAY_RDMA_ON_DEMAND", kNccl, "when-short", "off, when-short or always: on-demand paging"},
    {"FAIRWAY_RDMA_PKEY", kNccl, "the port's first", "partition key"},
    {"FAIRWAY_RDMA_QUEUE_PAIRS", kNccl, "1, or one for each leg of a bond", "queue pairs to each port of a peer"},
    {"FAIRWAY_RDMA_RETRIES", kNccl, "6", "retransmissions before a link is down"},
    {"FAIRWAY_RDMA_SERVICE_LEVEL", kNccl, "0", "service level, or priority of RoCE"},
    {"FAIRWAY_RDMA_TIMEOUT", kNccl, "14", "local ACK timeout, 4.096 us << it"},
    {"FAIRWAY_RDMA_TRAFFIC_CLASS", kNccl, "0", "traffic class of RoCE"},
    {"FAIRWAY_SPIN_US", kNccl, "20", "with FAIRWAY_WORKERS: how long a thread looks for work"},
    {"FAIRWAY_STRICT_ISOLATION", kNccl, "0", "1: map no more of a peer's memory than its regions"},
    {"FAIRWAY_TRANSPORTS", kNccl, "all that work here", "transports to use"},
    {"FAIRWAY_WORKERS", kNccl, "0: NCCL's thread", "threads that move bytes"},
    {"FAIRWAY_AS_NIXL", kPython, "0", "1: a later `import nixl` gives fairway.nixl"},
    {"FAIRWAY_MAX_REGIONS", kPython, "grows by itself", "regions of an agent of fairway.nixl"},
    {"FAIRWAY_TORCH_STAGE", kPython, "unset", "the torch backend stages GPU tensors through host memory"},
};

}  // namespace

std::span<const Variable> variables() {
  return kVariables;
}

}  // namespace fairway::tool

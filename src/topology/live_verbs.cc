#include "topology/live.h"

namespace fairway::topology {

Status read_verbs(Machine&) {
  return {ErrorCode::unsupported, "this build has no libibverbs: limits of RDMA devices stay unknown"};
}

}  // namespace fairway::topology

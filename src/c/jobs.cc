// Ranks of a job: who they are, and how they join.
#include "c/collective.h"

using namespace fairway;
using namespace fairway::c;

namespace {

struct HeldRanks : fairway_ranks {
  Ranks own;
};

}  // namespace

extern "C" {

FAIRWAY_API void fairway_job_options_init(fairway_job_options* out) {
  *out = {};
  out->struct_size = sizeof *out;
}

FAIRWAY_API fairway_code fairway_communicator_join(const fairway_job_options* given, fairway_communicator** out,
                                                   fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    fairway_job_options in;
    fairway_job_options_init(&in);
    JobOptions options;
    if (Status status = read_struct(given, in); !status) return status;
    if (Status status = read_communicator_options(in.communicator, options.communicator); !status) return status;
    if (Status status = read_engine_options(in.engine, options.engine); !status) return status;
    options.environment = in.environment;
    auto joined = Communicator::join(options);
    if (!joined) return joined.status();
    fairway_engine* const engine = make_handle(joined->engine());
    Status status = hand_over(std::move(joined), engine, out);
    let_go(engine);  // the communicator holds it
    return status;
  });
}

FAIRWAY_API fairway_code fairway_detect_ranks(const char* const* environment, fairway_ranks** out,
                                              fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    auto found = detect_ranks(environment);
    if (!found) return found.status();
    auto held = std::make_unique<HeldRanks>();
    held->own = std::move(*found);
    static_cast<fairway_ranks&>(*held) = {sizeof(fairway_ranks),
                                          held->own.rank,
                                          held->own.size,
                                          held->own.local_rank,
                                          static_cast<uint8_t>(held->own.one_host),
                                          held->own.launcher.c_str(),
                                          held->own.job.c_str(),
                                          held->own.master.c_str()};
    *out = held.release();
    return {};
  });
}
FAIRWAY_API void fairway_ranks_free(fairway_ranks* ranks) {
  delete static_cast<HeldRanks*>(ranks);
}

}  // extern "C"

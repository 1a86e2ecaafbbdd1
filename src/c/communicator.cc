#include "fairway/progress.h"

#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

namespace {

// The texts of a failure that its struct points at.
struct HeldFailure : fairway_failure {
  std::string own_phase, own_text;
};

}  // namespace

namespace fairway::c {

Status read_communicator_options(const fairway_communicator_options* given, CommunicatorOptions& out) {
  fairway_communicator_options in;
  fairway_communicator_options_init(&in);
  if (Status status = read_struct(given, in); !status) return status;
  if (in.name != nullptr) out.name = in.name;
  out.timeout = timeout_of(in.timeout_us);
  out.slot_bytes = in.slot_bytes;
  out.first_immediate = in.first_immediate;
  return {};
}

Status read_addresses(const char* const* addresses, std::size_t count, std::vector<std::string>& out) {
  if (addresses == nullptr && count != 0)
    return {ErrorCode::invalid_argument, "there is a count of addresses but their array is null"};
  for (std::size_t i = 0; i < count; ++i) {
    if (addresses[i] == nullptr)
      return {ErrorCode::invalid_argument, "address " + std::to_string(i) + " is null: \"\" stands for the own one"};
    out.emplace_back(addresses[i]);
  }
  return {};
}

Status hand_over(Result<Communicator> made, fairway_engine* engine, fairway_communicator** out) {
  if (!made) return made.status();
  *out = new fairway_communicator{std::move(*made), engine};
  hold(engine);
  return {};
}

}  // namespace fairway::c

extern "C" {

FAIRWAY_API void fairway_communicator_options_init(fairway_communicator_options* out) {
  const CommunicatorOptions defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->timeout_us = static_cast<int64_t>(defaults.timeout.count());
  out->slot_bytes = defaults.slot_bytes;
  out->first_immediate = defaults.first_immediate;
}

FAIRWAY_API fairway_code fairway_communicator_create(fairway_engine* engine, int32_t rank, const char* const* addresses,
                                                     size_t count, const fairway_communicator_options* given,
                                                     fairway_communicator** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return with(
      engine, error,
      [&](Engine& used) -> Status {
        CommunicatorOptions options;
        std::vector<std::string> all;
        if (Status status = read_communicator_options(given, options); !status) return status;
        if (Status status = read_addresses(addresses, count, all); !status) return status;
        return hand_over(Communicator::create(used, rank, all, options), engine, out);
      },
      out);
}
FAIRWAY_API void fairway_communicator_free(fairway_communicator* communicator) {
  if (communicator == nullptr) return;
  fairway_engine* const engine = communicator->engine;
  delete communicator;
  let_go(engine);
}
FAIRWAY_API int32_t fairway_communicator_rank(const fairway_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->communicator.rank();
}
FAIRWAY_API int32_t fairway_communicator_size(const fairway_communicator* communicator) {
  return communicator == nullptr ? 0 : communicator->communicator.size();
}
FAIRWAY_API fairway_engine* fairway_communicator_engine(const fairway_communicator* communicator) {
  return communicator == nullptr ? nullptr : communicator->engine;
}

FAIRWAY_API void fairway_communicator_abort(fairway_communicator* communicator) {
  if (communicator != nullptr && !communicator->engine->closed) communicator->communicator.abort();
}
FAIRWAY_API char* fairway_communicator_address(const fairway_communicator* communicator, int32_t rank) {
  if (rank < 0 || rank >= fairway_communicator_size(communicator)) return nullptr;
  try {
    return copy_text(communicator->communicator.address(rank));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
FAIRWAY_API fairway_code fairway_communicator_split(fairway_communicator* communicator, int32_t color, int32_t key,
                                                    fairway_communicator** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return with_group(
      communicator, error,
      [&](Communicator& group) { return hand_over(group.split(color, key), communicator->engine, out); }, out);
}
FAIRWAY_API fairway_code fairway_communicator_shrink(fairway_communicator* communicator, const int32_t* without,
                                                     size_t count, fairway_communicator** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        if (without == nullptr && count != 0)
          return {ErrorCode::invalid_argument, "there is a count of ranks to leave out but their array is null"};
        return hand_over(group.shrink({without, count}), communicator->engine, out);
      },
      out);
}
FAIRWAY_API fairway_code fairway_communicator_grow(fairway_communicator* communicator, const char* const* added,
                                                   size_t count, const fairway_communicator_options* given,
                                                   fairway_communicator** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        CommunicatorOptions options;
        std::vector<std::string> more;
        if (Status status = read_communicator_options(given, options); !status) return status;
        if (Status status = read_addresses(added, count, more); !status) return status;
        return hand_over(group.grow(more, options), communicator->engine, out);
      },
      out, given);
}

FAIRWAY_API fairway_failure* fairway_communicator_failure(const fairway_communicator* communicator) {
  if (communicator == nullptr || communicator->communicator.failure().status) return nullptr;
  try {
    const CollectiveFailure& why = communicator->communicator.failure();
    auto held = std::make_unique<HeldFailure>();
    held->own_phase = why.phase;
    held->own_text = why.status.to_string();
    static_cast<fairway_failure&>(*held) = {sizeof(fairway_failure),
                                            why.rank,
                                            static_cast<fairway_code>(why.status.code()),
                                            why.operation,
                                            held->own_phase.c_str(),
                                            held->own_text.c_str()};
    return held.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
FAIRWAY_API void fairway_failure_free(fairway_failure* failure) {
  delete static_cast<HeldFailure*>(failure);
}

}  // extern "C"

// ---- ranks of a job: who they are, and how they join ----

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

namespace {

// What the arrays of a fairway_progress lie in.
struct HeldProgress : fairway_progress {
  std::vector<RankProgress> own;
  std::vector<std::string> own_hangs;
  std::vector<fairway_rank_progress> own_ranks;
  std::vector<const char*> texts;
};

// Pointers and the texts behind them, in one block for fairway_free.
char** block_of(const std::vector<std::string>& texts) {
  std::size_t bytes = (texts.size() + 1) * sizeof(char*);
  for (const std::string& text : texts) bytes += text.size() + 1;
  auto** const block = static_cast<char**>(std::malloc(bytes));
  if (block == nullptr) throw std::bad_alloc();
  char* at = reinterpret_cast<char*>(block + texts.size() + 1);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    block[i] = at;
    std::memcpy(at, texts[i].c_str(), texts[i].size() + 1);
    at += texts[i].size() + 1;
  }
  block[texts.size()] = nullptr;
  return block;
}

fairway_rank_progress progress_of(const RankProgress& rank) {
  return {rank.name.c_str(),
          rank.group,
          rank.process,
          rank.operation,
          rank.rank,
          rank.size,
          static_cast<int32_t>(rank.kind),
          rank.waits_for,
          static_cast<uint8_t>(rank.lives),
          static_cast<uint8_t>(rank.stopped),
          static_cast<uint8_t>(rank.inside),
          rank.phase.c_str(),
          rank.seconds,
          rank.stream,
          rank.call};
}

}  // namespace

extern "C" {

FAIRWAY_API fairway_code fairway_exchange_addresses(const char* folder, int32_t rank, int32_t size, const char* address,
                                                    int64_t timeout_us, char*** out, fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (folder == nullptr || address == nullptr || out == nullptr)
      return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    const auto addresses = exchange_addresses(folder, rank, size, address, timeout_of(timeout_us));
    if (addresses) *out = block_of(*addresses);
    return addresses.status();
  });
}

FAIRWAY_API fairway_code fairway_progress_of_ranks(double patience_seconds, fairway_progress** out,
                                                   fairway_error** error) {
  if (out != nullptr) *out = nullptr;
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return {ErrorCode::invalid_argument, "an argument that must point somewhere is null"};
    auto held = std::make_unique<HeldProgress>();
    held->own = progress_of_ranks();
    held->own_hangs = who_hangs(held->own, patience_seconds);
    for (const RankProgress& rank : held->own) held->own_ranks.push_back(progress_of(rank));
    for (const std::string& text : held->own_hangs) held->texts.push_back(text.c_str());
    static_cast<fairway_progress&>(*held) = {sizeof(fairway_progress), held->own_ranks.data(), held->texts.data(),
                                             held->own_ranks.size(), held->texts.size()};
    *out = held.release();
    return {};
  });
}
FAIRWAY_API void fairway_progress_free(fairway_progress* progress) {
  delete static_cast<HeldProgress*>(progress);
}

}  // extern "C"

#include "c/collective.h"

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

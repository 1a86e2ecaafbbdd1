// Collectives on GPU memory.
#include <vector>

#include "c/collective.h"

using namespace fairway;
using namespace fairway::c;

namespace {

static_assert(static_cast<int>(NcclUse::measured) == FAIRWAY_NCCL_MEASURED);
static_assert(static_cast<int>(NcclUse::never) == FAIRWAY_NCCL_NEVER);
static_assert(static_cast<int>(NcclUse::always) == FAIRWAY_NCCL_ALWAYS);

Status read_gpu_options(const fairway_gpu_options* given, GpuOptions& out) {
  fairway_gpu_options in;
  fairway_gpu_options_init(&in);
  if (Status status = read_struct(given, in); !status) return status;
  if (in.nccl < 0 || in.nccl > FAIRWAY_NCCL_ALWAYS)
    return {ErrorCode::invalid_argument,
            "the GPU options' nccl has no value " + std::to_string(in.nccl) +
                ": it is FAIRWAY_NCCL_MEASURED, FAIRWAY_NCCL_NEVER or FAIRWAY_NCCL_ALWAYS"};
  out.nccl = static_cast<NcclUse>(in.nccl);
  out.guarded = in.guarded != 0;
  if (in.nccl_library != nullptr) out.nccl_library = in.nccl_library;
  if (in.table != nullptr) out.table = in.table;
  out.windows_from = in.windows_from;
  out.meet_from = in.meet_from;
  out.messages = in.messages != 0;
  out.graphs_in_turn = in.graphs_in_turn != 0;
  return {};
}

}  // namespace

extern "C" {

FAIRWAY_API void fairway_gpu_options_init(fairway_gpu_options* out) {
  const GpuOptions defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->nccl = static_cast<int32_t>(defaults.nccl);
  out->guarded = static_cast<uint8_t>(defaults.guarded);
  out->windows_from = defaults.windows_from;
  out->meet_from = defaults.meet_from;
  out->messages = static_cast<uint8_t>(defaults.messages);
  out->graphs_in_turn = static_cast<uint8_t>(defaults.graphs_in_turn);
}

FAIRWAY_API fairway_code fairway_communicator_use_gpu(fairway_communicator* communicator, int32_t gpu,
                                                      const fairway_gpu_options* given, fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) -> Status {
    GpuOptions options;
    if (Status status = read_gpu_options(given, options); !status) return status;
    return group.use_gpu(gpu, options);
  });
}
FAIRWAY_API fairway_code fairway_communicator_measure_gpu(fairway_communicator* communicator, size_t most_bytes,
                                                          int32_t compare, char** text, fairway_error** error) {
  if (text != nullptr) *text = nullptr;
  return with_group(
      communicator, error,
      [&](Communicator& group) { return give_text(group.measure_gpu(most_bytes, compare != 0), text); }, text);
}
FAIRWAY_API fairway_code fairway_communicator_explain_stream(const fairway_communicator* communicator,
                                                             const fairway_collective* given, int32_t captured,
                                                             char** text, fairway_error** error) {
  if (text != nullptr) *text = nullptr;
  return with_collective(
      communicator, given, error,
      [&](const Communicator& group, const Collective& call) {
        return give_text(group.explain_stream(call, captured != 0), text);
      },
      text);
}
FAIRWAY_API fairway_code fairway_communicator_stream_run(fairway_communicator* communicator,
                                                         const fairway_collective* given, void* stream,
                                                         fairway_error** error) {
  return with_collective(communicator, given, error,
                         [&](Communicator& group, const Collective& call) { return group.stream_run(call, stream); });
}
FAIRWAY_API fairway_code fairway_communicator_stream_messages(fairway_communicator* communicator, void* const* data,
                                                              const size_t* size_bytes, const int32_t* peers,
                                                              const uint8_t* receives, size_t count, void* stream,
                                                              int64_t timeout_us, fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) -> Status {
    if (count != 0 && (data == nullptr || size_bytes == nullptr || peers == nullptr || receives == nullptr))
      return {ErrorCode::invalid_argument, "data, size_bytes, peers or receives is null"};
    std::vector<StreamMessage> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = {data[i], size_bytes[i], peers[i], receives[i] != 0};
    return group.stream_messages(all, stream, own_timeout_of(timeout_us));
  });
}
FAIRWAY_API fairway_code fairway_communicator_stream_status(fairway_communicator* communicator, fairway_error** error) {
  return with_group(communicator, error, [](Communicator& group) { return group.stream_status(); });
}
// Memory that is null is refused by every rank, so that none waits for this one.
FAIRWAY_API fairway_code fairway_communicator_register_window(fairway_communicator* communicator, void* memory,
                                                              uint64_t size_bytes, uint64_t* window,
                                                              fairway_error** error) {
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        *window = 0;
        const auto shown = group.register_window(memory, size_bytes);
        if (shown) *window = shown->number;
        return shown.status();
      },
      window);
}
FAIRWAY_API fairway_code fairway_communicator_deregister_window(fairway_communicator* communicator, uint64_t window,
                                                                fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) { return group.deregister_window({window}); });
}

}  // extern "C"

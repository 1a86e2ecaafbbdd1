#include <type_traits>
#include <vector>

#include "c/abi.h"

using namespace fairway;
using namespace fairway::c;

static_assert(std::is_same_v<fairway_combine, CombineFunction>);

namespace {

// The name of a value, or "unknown".
template <class Enum>
const char* name_of(std::int32_t value, Enum last) {
  return value < 0 || value > static_cast<std::int32_t>(last) ? "unknown" : to_string(static_cast<Enum>(value)).data();
}

// Converts to an enum of the C++ API, or returns an error that names the member.
template <class Enum>
Status take(Enum& to, std::int32_t value, Enum last, const char* member) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    return {ErrorCode::invalid_argument, std::string("a collective's ") + member + " has no value " +
                                             std::to_string(value) + ": fairway_collectives.h lists them"};
  to = static_cast<Enum>(value);
  return {};
}

std::span<const std::size_t> ranks_of(const std::size_t* first, int size) {
  return first == nullptr ? std::span<const std::size_t>() : std::span(first, static_cast<std::size_t>(size));
}

}  // namespace

namespace fairway::c {

std::optional<Timeout> own_timeout_of(std::int64_t timeout_us) {
  return timeout_us == FAIRWAY_OWN_TIMEOUT ? std::nullopt : std::optional(timeout_of(timeout_us));
}

Status read_collective(const fairway_collective* caller, int size, Collective& out) {
  fairway_collective in;
  fairway_collective_init(&in);
  if (Status status = read_struct(caller, in); !status) return status;
  if (Status status = take(out.kind, in.kind, CollectiveKind::all_to_allv, "kind"); !status) return status;
  if (Status status = take(out.type, in.type, DataType::f8e5m2, "type"); !status) return status;
  if (Status status = take(out.reduction, in.reduction, Reduction::premul_sum, "reduction"); !status) return status;
  if (Status status = take(out.algorithm, in.algorithm, Algorithm::hierarchical, "algorithm"); !status) return status;
  out.input = in.input;
  out.output = in.output;
  out.count = in.count;
  out.root = in.root;
  out.send = {ranks_of(in.send_counts, size), ranks_of(in.send_offsets, size)};
  out.receive = {ranks_of(in.receive_counts, size), ranks_of(in.receive_offsets, size)};
  out.timeout = own_timeout_of(in.timeout_us);
  out.reproducible = in.reproducible != 0;
  out.local_completion = in.local_completion != 0;
  out.custom = {in.combine, in.combine_context, in.element_bytes};
  const bool zeroed = in.factor == 0 && out.reduction != Reduction::premul_sum;
  out.factor = zeroed ? 1 : in.factor;
  return {};
}

}  // namespace fairway::c

extern "C" {

FAIRWAY_API size_t fairway_type_size(int32_t type) {
  return type < 0 || type > FAIRWAY_F8E5M2 ? 0 : size_of(static_cast<DataType>(type));
}
FAIRWAY_API const char* fairway_type_name(int32_t type) {
  return name_of(type, DataType::f8e5m2);
}
FAIRWAY_API const char* fairway_reduction_name(int32_t reduction) {
  return name_of(reduction, Reduction::premul_sum);
}
FAIRWAY_API const char* fairway_collective_name(int32_t kind) {
  return name_of(kind, CollectiveKind::all_to_allv);
}
FAIRWAY_API const char* fairway_algorithm_name(int32_t algorithm) {
  return name_of(algorithm, Algorithm::hierarchical);
}

FAIRWAY_API void fairway_collective_init(fairway_collective* out) {
  const Collective defaults;
  *out = {};
  out->struct_size = sizeof *out;
  out->kind = static_cast<int32_t>(defaults.kind);
  out->type = static_cast<int32_t>(defaults.type);
  out->reduction = static_cast<int32_t>(defaults.reduction);
  out->algorithm = static_cast<int32_t>(defaults.algorithm);
  out->timeout_us = FAIRWAY_OWN_TIMEOUT;
  out->factor = defaults.factor;
}

FAIRWAY_API fairway_code fairway_communicator_run(fairway_communicator* communicator, const fairway_collective* given,
                                                  fairway_error** error) {
  return with_collective(communicator, given, error,
                         [](Communicator& group, const Collective& call) { return group.run(call); });
}
FAIRWAY_API fairway_code fairway_communicator_measure(fairway_communicator* communicator, size_t most_bytes,
                                                      int32_t compare, char** text, fairway_error** error) {
  if (text != nullptr) *text = nullptr;
  return with_group(
      communicator, error,
      [&](Communicator& group) { return give_text(group.measure(most_bytes, compare != 0), text); }, text);
}
FAIRWAY_API fairway_code fairway_communicator_explain(const fairway_communicator* communicator,
                                                      const fairway_collective* given, char** text,
                                                      fairway_error** error) {
  if (text != nullptr) *text = nullptr;
  return with_collective(
      communicator, given, error,
      [&](const Communicator& group, const Collective& call) { return give_text(group.explain(call), text); }, text);
}
FAIRWAY_API fairway_code fairway_communicator_run_all(fairway_communicator* communicator,
                                                      const fairway_collective* given, size_t count,
                                                      fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) -> Status {
    if (count == 0) return {};
    if (given == nullptr)
      return {ErrorCode::invalid_argument, "there is a count of collectives but their array is null"};
    const std::size_t size = given->struct_size;
    const auto* next = reinterpret_cast<const unsigned char*>(given);
    std::vector<Collective> calls;
    for (std::size_t i = 0; i < count; ++i, next += size) {
      const auto* const one = reinterpret_cast<const fairway_collective*>(next);
      if (one->struct_size != size)
        return {ErrorCode::invalid_argument, "the collectives of one call have different struct_size"};
      Collective call;
      if (Status status = read_collective(one, group.size(), call); !status)
        return status.with_context("collective " + std::to_string(i));
      calls.push_back(call);
    }
    return group.run_all(calls);
  });
}
FAIRWAY_API fairway_code fairway_communicator_start(fairway_communicator* communicator, const fairway_collective* given,
                                                    uint64_t* operation, fairway_error** error) {
  if (operation != nullptr) *operation = 0;
  return with_collective(
      communicator, given, error,
      [&](Communicator& group, const Collective& call) {
        const auto started = group.start(call);
        if (started) *operation = started->number;
        return started.status();
      },
      operation);
}
FAIRWAY_API int32_t fairway_communicator_test(fairway_communicator* communicator, uint64_t operation) {
  if (communicator == nullptr || communicator->engine->closed) return 1;
  try {
    return communicator->communicator.test(OperationId{operation}) ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}
FAIRWAY_API fairway_code fairway_communicator_wait(fairway_communicator* communicator, uint64_t operation,
                                                   fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) { return group.wait(OperationId{operation}); });
}
FAIRWAY_API fairway_code fairway_communicator_chosen(const fairway_communicator* communicator,
                                                     const fairway_collective* given, int32_t* algorithm,
                                                     fairway_error** error) {
  return with_collective(
      communicator, given, error,
      [&](const Communicator& group, const Collective& call) -> Status {
        *algorithm = static_cast<int32_t>(group.chosen(call));
        return {};
      },
      algorithm);
}

FAIRWAY_API fairway_code fairway_communicator_send(fairway_communicator* communicator, const void* data,
                                                   size_t size_bytes, int32_t to, uint32_t tag, int64_t timeout_us,
                                                   fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) {
    return group.send(data, size_bytes, to, tag, own_timeout_of(timeout_us));
  });
}
FAIRWAY_API fairway_code fairway_communicator_receive(fairway_communicator* communicator, void* data, size_t size_bytes,
                                                      int32_t from, uint32_t tag, size_t* received, int64_t timeout_us,
                                                      fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) {
    return group.receive(data, size_bytes, from, tag, received, own_timeout_of(timeout_us));
  });
}

FAIRWAY_API fairway_code fairway_communicator_start_send(fairway_communicator* communicator, const void* data,
                                                         size_t size_bytes, int32_t to, uint32_t tag,
                                                         int64_t timeout_us, uint64_t* message, fairway_error** error) {
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        *message = 0;
        const auto started = group.start_send(data, size_bytes, to, tag, own_timeout_of(timeout_us));
        if (started) *message = started->number;
        return started.status();
      },
      message);
}
FAIRWAY_API fairway_code fairway_communicator_start_receive(fairway_communicator* communicator, void* data,
                                                            size_t size_bytes, int32_t from, uint32_t tag,
                                                            int64_t timeout_us, uint64_t* message,
                                                            fairway_error** error) {
  return with_group(
      communicator, error,
      [&](Communicator& group) -> Status {
        *message = 0;
        const auto started = group.start_receive(data, size_bytes, from, tag, own_timeout_of(timeout_us));
        if (started) *message = started->number;
        return started.status();
      },
      message);
}
FAIRWAY_API int32_t fairway_communicator_test_message(fairway_communicator* communicator, uint64_t message) {
  if (communicator == nullptr || communicator->engine->closed) return 1;
  try {
    return communicator->communicator.test(MessageId{message}) ? 1 : 0;
  } catch (const std::bad_alloc&) {
    return 0;
  }
}
FAIRWAY_API fairway_code fairway_communicator_wait_message(fairway_communicator* communicator, uint64_t message,
                                                           size_t* received, fairway_error** error) {
  return with_group(communicator, error, [&](Communicator& group) { return group.wait(MessageId{message}, received); });
}

}  // extern "C"

// ---- collectives on GPU memory ----

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

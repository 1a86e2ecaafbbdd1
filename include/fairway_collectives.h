#pragma once

/* Fairway's C ABI for collectives: all of fairway/collectives.h, which says what each call promises. The rules of
 * fairway.h for errors, structs, ownership and timeouts hold here too.
 *
 * One thread at a time uses a communicator, but for abort. Communicators may be freed after the engine that they stand
 * on: freeing the engine closes it, and the last of them releases it. Their calls return FAIRWAY_CLOSED then. Do not
 * close an engine while such a call runs. */

#include "fairway.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  FAIRWAY_I8,
  FAIRWAY_U8,
  FAIRWAY_I16,
  FAIRWAY_U16,
  FAIRWAY_I32,
  FAIRWAY_U32,
  FAIRWAY_I64,
  FAIRWAY_U64,
  FAIRWAY_F16,
  FAIRWAY_BF16,
  FAIRWAY_F32,
  FAIRWAY_F64,
  FAIRWAY_F8E4M3,
  FAIRWAY_F8E5M2
};
enum { FAIRWAY_SUM, FAIRWAY_PRODUCT, FAIRWAY_MIN, FAIRWAY_MAX, FAIRWAY_AVERAGE, FAIRWAY_CUSTOM, FAIRWAY_PREMUL_SUM };
enum {
  FAIRWAY_BARRIER,
  FAIRWAY_ALL_REDUCE,
  FAIRWAY_REDUCE,
  FAIRWAY_BROADCAST,
  FAIRWAY_ALL_GATHER,
  FAIRWAY_GATHER,
  FAIRWAY_SCATTER,
  FAIRWAY_REDUCE_SCATTER,
  FAIRWAY_ALL_TO_ALL,
  FAIRWAY_ALL_TO_ALLV
};
enum {
  FAIRWAY_ALGORITHM_AUTOMATIC,
  FAIRWAY_ALGORITHM_ONE_SHOT,
  FAIRWAY_ALGORITHM_DIRECT,
  FAIRWAY_ALGORITHM_RECURSIVE_DOUBLING,
  FAIRWAY_ALGORITHM_RING,
  FAIRWAY_ALGORITHM_BINOMIAL,
  FAIRWAY_ALGORITHM_CHAIN,
  FAIRWAY_ALGORITHM_BRUCK,
  FAIRWAY_ALGORITHM_DISSEMINATION,
  FAIRWAY_ALGORITHM_HIERARCHICAL
};
size_t fairway_type_size(int32_t type);      /* bytes of one element; 0: there is no such type */
const char* fairway_type_name(int32_t type); /* "bf16"; "unknown" for what is none, as for the next three */
const char* fairway_reduction_name(int32_t reduction);
const char* fairway_collective_name(int32_t kind); /* "all_reduce" */
const char* fairway_algorithm_name(int32_t algorithm);

/* ---- communicators ---- */
typedef struct fairway_communicator fairway_communicator;
typedef struct {
  size_t struct_size;
  const char* name; /* null: the default, "world" */
  int64_t timeout_us;
  uint32_t slot_bytes, first_immediate;
} fairway_communicator_options;
void fairway_communicator_options_init(fairway_communicator_options*);

/* Joins rank `rank` of `count`. Null options, here and below: defaults. */
fairway_code fairway_communicator_create(fairway_engine*, int32_t rank, const char* const* addresses, size_t count,
                                         const fairway_communicator_options*, fairway_communicator**, fairway_error**);
/* Joins the ranks of this job, over an engine that lives as long as the communicators made of it. */
typedef struct {
  size_t struct_size;
  const fairway_communicator_options* communicator; /* null: defaults */
  const fairway_options* engine;                    /* null: defaults, but FAIRWAY_PROGRESS_CALLER */
  const char* const* environment;                   /* "NAME=value" each, up to a null; null: this process's own */
} fairway_job_options;
void fairway_job_options_init(fairway_job_options*);
fairway_code fairway_communicator_join(const fairway_job_options*, fairway_communicator**, fairway_error**);
/* By any thread while another is inside a call of it, except free; ends it, and that call, with FAIRWAY_CANCELLED. */
void fairway_communicator_abort(fairway_communicator*);
void fairway_communicator_free(fairway_communicator*);          /* other ranks that still need this one get an error */
int32_t fairway_communicator_rank(const fairway_communicator*); /* null: -1, and a size of 0 */
int32_t fairway_communicator_size(const fairway_communicator*);
fairway_engine* fairway_communicator_engine(const fairway_communicator*);      /* borrowed */
char* fairway_communicator_address(const fairway_communicator*, int32_t rank); /* fairway_free; null: no such rank */
fairway_code fairway_communicator_split(fairway_communicator*, int32_t color, int32_t key, fairway_communicator**,
                                        fairway_error**);
fairway_code fairway_communicator_shrink(fairway_communicator*, const int32_t* without, size_t count,
                                         fairway_communicator**, fairway_error**);
fairway_code fairway_communicator_grow(fairway_communicator*, const char* const* added, size_t count,
                                       const fairway_communicator_options*, fairway_communicator**, fairway_error**);

/* Why a communicator ended: one block, to be freed with fairway_failure_free. Null: it has not. */
typedef struct {
  size_t struct_size;
  int32_t rank; /* that is at fault; -1: none alone */
  fairway_code code;
  uint64_t operation;
  const char *phase, *text;
} fairway_failure;
fairway_failure* fairway_communicator_failure(const fairway_communicator*);
void fairway_failure_free(fairway_failure*);

/* ---- operations ---- */
#define FAIRWAY_OWN_TIMEOUT INT64_MIN /* of an operation or a message: the communicator's own; 0 has passed */
typedef void (*fairway_combine)(void* into, const void* a, const void* b, size_t count, void* context);
typedef struct {
  size_t struct_size;
  int32_t kind;
  const void* input;
  void* output;
  uint64_t count;
  int32_t type, reduction, root, algorithm;
  const size_t *send_counts, *send_offsets, *receive_counts, *receive_offsets; /* ALL_TO_ALLV: `size` elements each */
  int64_t timeout_us;                                                          /* or FAIRWAY_OWN_TIMEOUT, the default */
  uint8_t reproducible;
  fairway_combine combine; /* CUSTOM */
  void* combine_context;
  size_t element_bytes;
  double factor; /* PREMUL_SUM: this rank's; others: 1, or 0 in a struct that you zero */
  uint8_t local_completion;
} fairway_collective;
void fairway_collective_init(fairway_collective*); /* a barrier */

fairway_code fairway_communicator_run(fairway_communicator*, const fairway_collective*, fairway_error**);
/* A group, in order, all with the first one's struct_size. */
fairway_code fairway_communicator_run_all(fairway_communicator*, const fairway_collective*, size_t count,
                                          fairway_error**);
/* Texts, to be freed with fairway_free: as fairway::Communicator's measure (collective) and explain. */
fairway_code fairway_communicator_measure(fairway_communicator*, size_t most_bytes, int32_t compare, char** text,
                                          fairway_error**);
fairway_code fairway_communicator_explain(const fairway_communicator*, const fairway_collective*, char** text,
                                          fairway_error**);
/* The operation's number, from 1 on. What the struct points at is borrowed as fairway::Collective says. */
fairway_code fairway_communicator_start(fairway_communicator*, const fairway_collective*, uint64_t* operation,
                                        fairway_error**);
int32_t fairway_communicator_test(fairway_communicator*, uint64_t operation); /* 1: ended, or none; makes progress */
fairway_code fairway_communicator_wait(fairway_communicator*, uint64_t operation, fairway_error**);
fairway_code fairway_communicator_chosen(const fairway_communicator*, const fairway_collective*, int32_t* algorithm,
                                         fairway_error**);

/* ---- GPU memory, as fairway::Communicator has it: use_gpu, measure_gpu and calls of windows are collective ---- */
enum { FAIRWAY_NCCL_MEASURED, FAIRWAY_NCCL_NEVER, FAIRWAY_NCCL_ALWAYS };
typedef struct {
  size_t struct_size;
  int32_t nccl;
  uint8_t guarded, messages, graphs_in_turn;
  const char *nccl_library, *table; /* null: as fairway::GpuOptions says of an empty one */
  uint64_t windows_from, meet_from;
} fairway_gpu_options;
void fairway_gpu_options_init(fairway_gpu_options*);
fairway_code fairway_communicator_use_gpu(fairway_communicator*, int32_t gpu, const fairway_gpu_options*,
                                          fairway_error**);
/* Texts, to be freed with fairway_free: the figures of up to so many bytes; who would do an operation, and why. */
fairway_code fairway_communicator_measure_gpu(fairway_communicator*, size_t most_bytes, int32_t compare, char** text,
                                              fairway_error**);
fairway_code fairway_communicator_explain_stream(const fairway_communicator*, const fairway_collective*,
                                                 int32_t captured, char** text, fairway_error**);
fairway_code fairway_communicator_stream_run(fairway_communicator*, const fairway_collective*, void* stream,
                                             fairway_error**); /* a cudaStream_t */
fairway_code fairway_communicator_stream_messages(fairway_communicator*, void* const* data, const size_t* size_bytes,
                                                  const int32_t* peers, const uint8_t* receives, size_t count,
                                                  void* stream, int64_t timeout_us, fairway_error**);
fairway_code fairway_communicator_stream_status(fairway_communicator*, fairway_error**);
fairway_code fairway_communicator_register_window(fairway_communicator*, void* memory, uint64_t size_bytes,
                                                  uint64_t* window, fairway_error**); /* its number, from 1 on */
fairway_code fairway_communicator_deregister_window(fairway_communicator*, uint64_t window, fairway_error**);

/* ---- messages between two ranks; their timeout may be FAIRWAY_OWN_TIMEOUT ---- */
fairway_code fairway_communicator_send(fairway_communicator*, const void* data, size_t size_bytes, int32_t to,
                                       uint32_t tag, int64_t timeout_us, fairway_error**);
fairway_code fairway_communicator_receive(fairway_communicator*, void* data, size_t size_bytes, int32_t from,
                                          uint32_t tag, size_t* received, int64_t timeout_us,
                                          fairway_error**); /* received: null, or its bytes */
/* The same, asynchronous; the message's number, from 1 on. */
fairway_code fairway_communicator_start_send(fairway_communicator*, const void* data, size_t size_bytes, int32_t to,
                                             uint32_t tag, int64_t timeout_us, uint64_t* message, fairway_error**);
fairway_code fairway_communicator_start_receive(fairway_communicator*, void* data, size_t size_bytes, int32_t from,
                                                uint32_t tag, int64_t timeout_us, uint64_t* message, fairway_error**);
int32_t fairway_communicator_test_message(fairway_communicator*, uint64_t message); /* as for an operation */
fairway_code fairway_communicator_wait_message(fairway_communicator*, uint64_t message, size_t* received,
                                               fairway_error**);

/* ---- how ranks find each other ---- */
/* What the launcher says of this process: one block, to be freed with fairway_ranks_free. */
typedef struct {
  size_t struct_size;
  int32_t rank, size, local_rank; /* local_rank -1: it does not say */
  uint8_t one_host;               /* all ranks */
  const char *launcher, *job, *master;
} fairway_ranks;
fairway_code fairway_detect_ranks(const char* const* environment, fairway_ranks**, fairway_error**);
void fairway_ranks_free(fairway_ranks*);
/* The addresses by rank: one block of `size` pointers and their texts, to be freed with fairway_free. */
fairway_code fairway_exchange_addresses(const char* folder, int32_t rank, int32_t size, const char* address,
                                        int64_t timeout_us, char*** addresses, fairway_error**);

/* ---- who hangs: one block, to be freed with fairway_progress_free ---- */
typedef struct {
  const char* name;
  uint64_t group, process, operation;
  int32_t rank, size, kind, waits_for;
  uint8_t lives, stopped, inside;
  const char* phase;
  double seconds;
  int32_t stream; /* -1: on host memory */
  uint64_t call;
} fairway_rank_progress;
typedef struct {
  size_t struct_size;
  const fairway_rank_progress* ranks;
  const char* const* hangs; /* a sentence for each communicator in which a rank has waited for so long */
  size_t rank_count, hang_count;
} fairway_progress;
fairway_code fairway_progress_of_ranks(double patience_seconds, fairway_progress**, fairway_error**);
void fairway_progress_free(fairway_progress*);

#ifdef __cplusplus
}
#endif

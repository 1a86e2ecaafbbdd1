#pragma once

/* Fairway's C ABI: all of fairway/engine.h, which says what each call promises, for C11 and for languages that call C.
 *
 * Errors: a call that can fail returns a fairway_code, 0 for ok. Its last argument may be null; otherwise it receives
 * an error with the message, to be freed with fairway_error_free, or null if the call succeeded.
 *
 * Structs: set struct_size to the struct's size as the caller was compiled. The _init functions set it, and the
 * defaults. Later versions only append members. A library accepts shorter structs, and longer ones whose unknown
 * members are 0. Structs without struct_size never change.
 *
 * Ownership: the declaration of each call says what frees its result. Strings are UTF-8 and end in 0; those passed in
 * are copied, or borrowed for the call.
 *
 * Timeouts are microseconds, negative for ever. All calls are thread-safe. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t fairway_code;
enum {
  FAIRWAY_OK = 0,
  FAIRWAY_INVALID_ARGUMENT,
  FAIRWAY_NOT_FOUND,
  FAIRWAY_ALREADY_EXISTS,
  FAIRWAY_ACCESS_DENIED,
  FAIRWAY_OUT_OF_RANGE,
  FAIRWAY_UNSUPPORTED,
  FAIRWAY_QUEUE_FULL,
  FAIRWAY_RESOURCE_EXHAUSTED,
  FAIRWAY_UNREACHABLE,
  FAIRWAY_PEER_DEAD,
  FAIRWAY_STALE_INCARNATION,
  FAIRWAY_LINK_FAILED,
  FAIRWAY_CANCELLED,
  FAIRWAY_DEADLINE_EXCEEDED,
  FAIRWAY_TIMED_OUT,
  FAIRWAY_DEPENDENCY_FAILED,
  FAIRWAY_TRUNCATED,
  FAIRWAY_CHECKSUM_MISMATCH,
  FAIRWAY_NOT_FENCED,
  FAIRWAY_REVOKED,
  FAIRWAY_AUTHENTICATION_FAILED,
  FAIRWAY_VERSION_MISMATCH,
  FAIRWAY_PROTOCOL_ERROR,
  FAIRWAY_CLOSED,
  FAIRWAY_SYSTEM_ERROR
};
enum { FAIRWAY_EFFECT_NOT_APPLIED, FAIRWAY_EFFECT_PARTIAL, FAIRWAY_EFFECT_UNKNOWN };
enum { FAIRWAY_MEMORY_HOST, FAIRWAY_MEMORY_PINNED, FAIRWAY_MEMORY_DEVICE, FAIRWAY_MEMORY_MANAGED };
enum { FAIRWAY_ACCESS_NONE = 0, FAIRWAY_ACCESS_READ = 1, FAIRWAY_ACCESS_WRITE = 2, FAIRWAY_ACCESS_ATOMIC = 4 };
enum { FAIRWAY_WRITE, FAIRWAY_READ, FAIRWAY_SEND, FAIRWAY_RECEIVE, FAIRWAY_FETCH_ADD, FAIRWAY_COMPARE_SWAP };
enum { FAIRWAY_EXTENT, FAIRWAY_EXTENTS, FAIRWAY_STRIDED, FAIRWAY_PAGED };
enum { FAIRWAY_NOTIFY_NONE, FAIRWAY_NOTIFY_EVENT, FAIRWAY_NOTIFY_COUNTER, FAIRWAY_NOTIFY_SIGNAL };
enum { FAIRWAY_TO_WAIT, FAIRWAY_TO_POLL, FAIRWAY_TO_CALLBACK };
enum { FAIRWAY_BULK, FAIRWAY_NORMAL, FAIRWAY_URGENT };
enum { FAIRWAY_PROGRESS_THREADS, FAIRWAY_PROGRESS_CALLER };
enum { FAIRWAY_ON_DEMAND_OFF, FAIRWAY_ON_DEMAND_WHEN_SHORT, FAIRWAY_ON_DEMAND_ALWAYS };
enum {
  FAIRWAY_PEER_UP,
  FAIRWAY_PEER_DOWN,
  FAIRWAY_LINK_UP,
  FAIRWAY_LINK_DOWN,
  FAIRWAY_LINK_SLOW,
  FAIRWAY_MAPPING_ENDED
};
enum { FAIRWAY_FAR_NOTHING, FAIRWAY_FAR_ALL, FAIRWAY_FAR_PARTIAL, FAIRWAY_FAR_UNKNOWN };
enum { FAIRWAY_PUT_AUTOMATIC, FAIRWAY_PUT_KERNEL, FAIRWAY_PUT_COPY_ENGINE };

/* ---- errors: they own the texts that these calls return ---- */
typedef struct fairway_error fairway_error;
const char* fairway_version(void);                    /* "0.2.0" */
const char* fairway_code_name(fairway_code code);     /* "peer_dead" */
const char* fairway_error_text(const fairway_error*); /* all of it, in one line; the others are its parts */
const char* fairway_error_message(const fairway_error*);
const char* fairway_error_peer(const fairway_error*); /* "" when none is concerned */
const char* fairway_error_link(const fairway_error*);
fairway_code fairway_error_code(const fairway_error*);
int32_t fairway_error_effect(const fairway_error*); /* what a failed transfer did at its target */
void fairway_error_free(fairway_error*);            /* null is allowed, as for every other _free */
void fairway_free(void*);                           /* strings and bytes that calls return */

/* ---- ids: a generation of 0 names nothing ---- */
typedef struct {
  uint32_t slot, generation;
} fairway_peer;
typedef struct {
  uint32_t slot, generation;
} fairway_transfer;
typedef struct {
  uint32_t slot, generation;
} fairway_region_id;
typedef struct {
  uint32_t slot, generation;
} fairway_remote_id;
typedef struct {
  uint32_t slot, generation;
} fairway_queue; /* a completion queue */
typedef struct {
  uint32_t slot, generation, first, count; /* a range of immediates */
} fairway_counters;

/* ---- engines ---- */
typedef struct fairway_engine fairway_engine;
typedef struct fairway_loopback fairway_loopback;
fairway_loopback* fairway_loopback_make(void); /* joins engines of one process; null: no memory */
void fairway_loopback_free(fairway_loopback*); /* engines that use it keep what they need */

typedef struct {
  size_t struct_size;
  const char *name, *listen, *job_key, *directory, *machine; /* null: the default */
  int32_t progress;
  uint32_t workers;
  uint64_t spin_us;
  uint32_t max_transfers, max_regions, max_remote_regions, max_peers, max_counters;
  uint32_t notifications_per_peer, unexpected_bytes_per_peer;
  uint64_t peer_timeout_ms;
  uint8_t prove_paths, strict_isolation;
  const char *const *transports, *const *interfaces, *const *providers, *const *rdma_devices;
  size_t transport_count, interface_count, provider_count, rdma_device_count;
  int32_t rdma_gid_index;
  uint32_t rdma_queue_pairs, rdma_service_level, rdma_traffic_class, rdma_hop_limit, rdma_timeout, rdma_retries;
  uint32_t rdma_partition, rdma_mtu;
  int32_t rdma_on_demand;
  uint8_t rdma_connection_manager;
  fairway_loopback* loopback;
  uint8_t keep_links_awake; /* NVLinks sleep after 50 ms, see docs/cuda.md */
} fairway_options;
void fairway_options_init(fairway_options*); /* as every _init: for this header's size, see struct_size */

fairway_code fairway_open(const fairway_options*, fairway_engine** engine,
                          fairway_error**);   /* null options: defaults */
void fairway_close(fairway_engine*);          /* ends every transfer; later calls return FAIRWAY_CLOSED */
void fairway_engine_free(fairway_engine*);    /* closes it; no other call may be running */
const char* fairway_address(fairway_engine*); /* lives as long as the engine */
fairway_code fairway_connect(fairway_engine*, const char* address, int64_t timeout_us, fairway_peer*, fairway_error**);
fairway_code fairway_disconnect(fairway_engine*, fairway_peer, fairway_error**);

typedef struct {
  size_t struct_size;
  int32_t kind;
  fairway_peer peer;
  char *name, *link, *detail;
  uint64_t incarnation, mapping;
  fairway_error* reason;
} fairway_peer_event;
/* 1: one was stored, to be given to fairway_peer_event_clear; 0: there is none. */
int32_t fairway_poll_peer_event(fairway_engine*, fairway_peer_event*);
void fairway_peer_event_clear(fairway_peer_event*);
fairway_code fairway_wait_peer_event(fairway_engine*, int64_t timeout_us, fairway_error**);

/* ---- memory ---- */
typedef struct {
  size_t struct_size;
  fairway_region_id id;
  void* address;
  uint64_t size_bytes;
  int32_t kind, access;
} fairway_region;
typedef struct {
  size_t struct_size;
  fairway_remote_id id;
  fairway_peer peer;
  uint64_t size_bytes;
  int32_t kind, access;
} fairway_remote_region;
typedef struct {
  size_t struct_size;
  int32_t kind, fd; /* fd -1: private */
  uint64_t fd_offset;
} fairway_memory_source;
void fairway_memory_source_init(fairway_memory_source*);
fairway_code fairway_register(fairway_engine*, void* address, uint64_t size_bytes, int32_t access,
                              const fairway_memory_source*, fairway_region*, fairway_error**); /* null: host memory */
fairway_code fairway_allocate(fairway_engine*, uint64_t size_bytes, int32_t access, fairway_region*, fairway_error**);
/* After FAIRWAY_NOT_FENCED ask again: each call waits for the same end. */
fairway_code fairway_deregister(fairway_engine*, fairway_region_id, int64_t timeout_us, fairway_error**);
typedef enum {
  FAIRWAY_FENCE_REGISTERED,
  FAIRWAY_FENCE_PENDING, /* deregister was called, and somebody may still access the memory */
  FAIRWAY_FENCE_FENCED,  /* nothing accesses it any more */
  FAIRWAY_FENCE_UNKNOWN
} fairway_fence;
int32_t fairway_fence_state(fairway_engine*, fairway_region_id); /* does not wait; a fairway_fence */
fairway_code fairway_describe(fairway_engine*, fairway_region_id, uint8_t** bytes, size_t* count, fairway_error**);
/* Importing or looking up the same region of a peer again gives the same id; one release ends it for all of them. */
fairway_code fairway_import(fairway_engine*, fairway_peer, const uint8_t* bytes, size_t count, fairway_remote_region*,
                            fairway_error**);
fairway_code fairway_release(fairway_engine*, const fairway_remote_region*, fairway_error**);
fairway_code fairway_publish(fairway_engine*, const char* name, fairway_region_id, fairway_error**);
fairway_code fairway_lookup(fairway_engine*, fairway_peer, const char* name, int64_t timeout_us, fairway_remote_region*,
                            fairway_error**);

/* ---- transfers ---- */
typedef struct {
  fairway_region_id region;
  uint64_t offset, length;
} fairway_slice;
typedef struct {
  fairway_remote_id region;
  uint64_t offset;
} fairway_remote_address;
typedef struct {
  fairway_slice local;
  fairway_remote_address remote;
} fairway_extent;
typedef struct {
  fairway_transfer id;
  fairway_code code;
  fairway_error* error;      /* null when code is 0; the receiver's to free, but not in a callback */
  uint64_t bytes, old_value; /* old_value: of atomics */
  void* user_data;
} fairway_completion;
fairway_peer fairway_completion_peer(const fairway_completion*); /* of a receive: whose message it is; zeros: none */
typedef void (*fairway_callback)(const fairway_completion*, void* user_data); /* a worker's thread: must not block */
static const int64_t FAIRWAY_NO_DEADLINE = INT64_MAX;                         /* as fairway_request_init sets it */
typedef struct {
  size_t struct_size;
  int32_t operation;
  fairway_peer peer;     /* zeros, of a receive: any */
  int32_t layout;        /* which of the next members count */
  fairway_extent extent; /* EXTENT; STRIDED: the first block; PAGED: only its regions */
  const fairway_extent* extents;
  uint64_t extent_count;
  uint64_t local_stride, remote_stride, count;         /* STRIDED */
  uint64_t page_bytes, local_unit, remote_unit, pages; /* PAGED; keep the arrays unchanged until it completes */
  const uint64_t *local_index, *remote_index;
  fairway_remote_address target; /* of atomics */
  uint64_t operand, expected, tag;
  int32_t notify;
  uint32_t immediate;
  const uint8_t* message; /* EVENT: up to 256 bytes, copied */
  size_t message_bytes;
  fairway_remote_address signal;
  uint64_t signal_value;
  uint8_t signal_add, checksum, local_completion;
  fairway_transfer after;
  int64_t deadline_us; /* left from now on; 0 or less: it has passed */
  void* start_after;   /* a CUDA event */
  int32_t priority, deliver;
  fairway_callback callback;
  void* user_data;
  fairway_queue queue; /* TO_POLL: whose fairway_poll_queue gets it; zeros: fairway_poll */
} fairway_request;
void fairway_request_init(fairway_request*);
/* Takes requests in order, all with the first one's struct_size; how many is *taken. FAIRWAY_OK with fewer: full. */
fairway_code fairway_submit(fairway_engine*, const fairway_request*, size_t count, fairway_transfer* ids, size_t* taken,
                            fairway_error**);
int32_t fairway_writable(fairway_engine*);
/* The message that a receive of `tag` from that peer, or from any (zeros), would take next; it is not taken. */
fairway_code fairway_probe(fairway_engine*, fairway_peer, uint64_t tag, int64_t timeout_us, fairway_peer* from,
                           uint64_t* size_bytes, fairway_error**);
/* FAIRWAY_OK: *completion is the outcome, which may be a failure. */
fairway_code fairway_wait(fairway_engine*, fairway_transfer, int64_t timeout_us, fairway_completion*, fairway_error**);
/* Of ids whose completion is collected already none counts; not_found: none is left. */
fairway_code fairway_wait_any(fairway_engine*, const fairway_transfer* ids, size_t count, int64_t timeout_us,
                              fairway_completion*, fairway_error**);
/* FAIRWAY_OK or FAIRWAY_NOT_FOUND: all `count` completions are stored, those not found with that code. Else: none. */
fairway_code fairway_wait_all(fairway_engine*, const fairway_transfer* ids, size_t count, int64_t timeout_us,
                              fairway_completion* completions, fairway_error**);
fairway_code fairway_flush(fairway_engine*, fairway_peer, int64_t timeout_us, fairway_error**);
fairway_code fairway_drain(fairway_engine*, int64_t timeout_us, fairway_error**); /* of all peers */
size_t fairway_poll(fairway_engine*, fairway_completion*, size_t count);
fairway_code fairway_make_queue(fairway_engine*, uint32_t capacity, fairway_queue*, fairway_error**);
fairway_code fairway_end_queue(fairway_engine*, fairway_queue, fairway_error**);
size_t fairway_poll_queue(fairway_engine*, fairway_queue, fairway_completion*, size_t count);
fairway_code fairway_wait_queue(fairway_engine*, fairway_queue, int64_t timeout_us, fairway_error**);
int fairway_fd(fairway_engine*);
typedef struct {
  size_t struct_size;
  int32_t fenced, far_side;
  char* held_by; /* not fenced: the peer that may still touch it; fairway_free */
} fairway_cancelled;
fairway_code fairway_cancel(fairway_engine*, fairway_transfer, int64_t timeout_us, fairway_cancelled*, fairway_error**);

/* ---- at the target ---- */
typedef struct {
  fairway_peer peer;
  uint32_t immediate, message_bytes;
  uint8_t message[256];
} fairway_notification;
size_t fairway_poll_notifications(fairway_engine*, fairway_notification*, size_t count);
fairway_code fairway_wait_notification(fairway_engine*, int64_t timeout_us, fairway_error**);
uint64_t fairway_counter(fairway_engine*, uint32_t immediate);
fairway_code fairway_wait_counter(fairway_engine*, uint32_t immediate, uint64_t at_least, int64_t timeout_us,
                                  fairway_error**);
/* first -1: any that are free. */
fairway_code fairway_make_counters(fairway_engine*, uint32_t count, int64_t first, fairway_counters*, fairway_error**);
fairway_code fairway_release_counters(fairway_engine*, const fairway_counters*, fairway_error**);
size_t fairway_poll_counters(fairway_engine*, const fairway_counters*, fairway_notification*, size_t count);
fairway_code fairway_wait_counters(fairway_engine*, const fairway_counters*, int64_t timeout_us, fairway_error**);

/* ---- kernels and streams (docs/cuda.md) ---- */
typedef struct {
  size_t struct_size;
  uint64_t id;
  void* address;
  uint64_t size_bytes;
  int32_t gpu, access;
  const uint32_t* ended;
  uint8_t atomics;
  char* path_description; /* how the GPU accesses it; fairway_free */
} fairway_mapping;
typedef struct {
  size_t struct_size;
  uint64_t offset;
  const void* from;
  uint64_t length;
  int32_t by;
  uint64_t signal_offset, signal_value; /* an offset of UINT64_MAX: no signal */
  uint8_t signal_add;
} fairway_stream_put;
typedef struct {
  size_t struct_size;
  const uint64_t* word;
  uint64_t *count, value, timeout_us;
  uint32_t* outcome;
  uint64_t with;
} fairway_stream_wait;
void fairway_stream_put_init(fairway_stream_put*);
void fairway_stream_wait_init(fairway_stream_wait*);
fairway_code fairway_map_remote(fairway_engine*, const fairway_remote_region*, int32_t gpu, int64_t timeout_us,
                                fairway_mapping*, fairway_error**);
fairway_code fairway_map_local(fairway_engine*, const fairway_region*, int32_t gpu, int64_t timeout_us,
                               fairway_mapping*, fairway_error**);
fairway_code fairway_unmap(fairway_engine*, uint64_t mapping, fairway_error**);
fairway_code fairway_put(fairway_engine*, uint64_t mapping, const fairway_stream_put*, void* stream, fairway_error**);
fairway_code fairway_wait_signal(fairway_engine*, const fairway_stream_wait*, void* stream, fairway_error**);
fairway_code fairway_wait_transfer(fairway_engine*, fairway_transfer, void* stream, fairway_error**);

/* ---- introspection: each result is one block, freed by its own _free ---- */
typedef struct {
  const char *name, *reason, *bound;
  double share, expected_low, expected_high;
  uint8_t taken;
} fairway_explained_link;
typedef struct {
  size_t struct_size;
  const char *operation, *peer, *state, *text; /* text: several lines for a person */
  const fairway_explained_link* links;
  const char* const* notes;
  size_t link_count, note_count;
  uint64_t bytes_done, retried_slices;
  double seconds, reached;
} fairway_explanation;
fairway_code fairway_explain_request(fairway_engine*, const fairway_request*, fairway_explanation**, fairway_error**);
fairway_code fairway_explain_peer(fairway_engine*, fairway_peer, fairway_explanation**, fairway_error**);
fairway_code fairway_explain_transfer(fairway_engine*, fairway_transfer, fairway_explanation**, fairway_error**);
void fairway_explanation_free(fairway_explanation*);

typedef struct {
  uint64_t count, p50_ns, p90_ns, p99_ns, max_ns;
} fairway_latency;
typedef struct {
  fairway_peer peer;
  const char* name;
  uint64_t transfers_ok, transfers_failed, bytes, notifications, in_flight;
  fairway_latency latency;
} fairway_peer_metrics;
typedef struct {
  const char* name;
  fairway_peer peer;
  uint64_t bytes_out, slices, errors, retries, failures, in_flight;
  uint8_t up;
} fairway_link_metrics;
typedef struct {
  const char* name;
  uint64_t system_calls, copied_bytes;
} fairway_transport_metrics;
typedef struct {
  const char *port, *name;
  uint64_t value;
} fairway_port_counter;
typedef struct {
  size_t struct_size;
  const fairway_peer_metrics* peers;
  const fairway_link_metrics* links;
  const fairway_transport_metrics* transports;
  const fairway_port_counter* ports;
  size_t peer_count, link_count, transport_count, port_count;
  uint64_t transfers_in_use, regions, back_pressure;
} fairway_metrics;
/* with_ports: the RDMA ports' counters too; reads about fifty small files for each port. Null: no memory. */
fairway_metrics* fairway_metrics_get(fairway_engine*, int32_t with_ports);
void fairway_metrics_free(fairway_metrics*);

#ifdef __cplusplus
}
#endif

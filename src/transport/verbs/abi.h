#pragma once

#include <cstddef>
#include <cstdint>

#include <pthread.h>

// The part of libibverbs' stable ABI (rdma-core's libibverbs/verbs.h, symbol versions IBVERBS_1.1 and later) that this
// transport uses. The library is loaded at run time, so the same binary runs with and without it, and its headers are
// not needed to build. A test compares these structures with the headers if they are installed.
namespace fairway::transport::verbs::abi {

struct Context;
struct Srq;
struct AddressHandle;  // ibv_ah

struct Device {  // ibv_device, the fields that are read
  void* operations[2];
  int node_type;
  int transport_type;
  char name[64];
  char dev_name[64];
  char dev_path[256];
  char ibdev_path[256];  // in sysfs
};

struct ProtectionDomain {  // ibv_pd
  Context* context;
  std::uint32_t handle;
};

struct MemoryRegion {  // ibv_mr
  Context* context;
  ProtectionDomain* domain;
  void* address;
  std::size_t length;
  std::uint32_t handle;
  std::uint32_t lkey;
  std::uint32_t rkey;
};

struct CompletionChannel {  // ibv_comp_channel
  Context* context;
  int fd;
  int refcnt;
};

struct CompletionQueue {  // ibv_cq
  Context* context;
  CompletionChannel* channel;
  void* user;
  std::uint32_t handle;
  int entries;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  std::uint32_t comp_events_completed;
  std::uint32_t async_events_completed;
};

struct QueuePair {  // ibv_qp
  Context* context;
  void* user;
  ProtectionDomain* domain;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  Srq* srq;
  std::uint32_t handle;
  std::uint32_t number;
  int state;
  int type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  std::uint32_t events_completed;
};

struct Gather {  // ibv_sge
  std::uint64_t address;
  std::uint32_t length;
  std::uint32_t lkey;
};

struct SendRequest {  // ibv_send_wr
  std::uint64_t id;
  SendRequest* next;
  Gather* gather;
  int gather_count;
  int opcode;
  unsigned flags;
  std::uint32_t immediate;  // big-endian
  union {
    struct {
      std::uint64_t address;
      std::uint32_t rkey;
    } rdma;
    struct {
      std::uint64_t address;
      std::uint64_t compare_add;
      std::uint64_t swap;
      std::uint32_t rkey;
    } atomic;
    struct {
      AddressHandle* ah;
      std::uint32_t number;  // of the queue pair there
      std::uint32_t key;
    } datagram;
  } remote;
  std::uint32_t srq_number;
  std::uint64_t unused_fields[6];  // binding of windows, segmentation: not used
};

struct ReceiveRequest {  // ibv_recv_wr
  std::uint64_t id;
  ReceiveRequest* next;
  Gather* gather;
  int gather_count;
};

struct WorkCompletion {  // ibv_wc
  std::uint64_t id;
  int status;
  int opcode;  // of no meaning unless status is success
  std::uint32_t vendor_error;
  std::uint32_t length;
  std::uint32_t immediate;  // big-endian
  std::uint32_t qp_number;
  std::uint32_t source_qp;
  unsigned flags;
  std::uint16_t pkey_index;
  std::uint16_t slid;
  std::uint8_t sl;
  std::uint8_t dlid_path_bits;
};

struct Context {  // ibv_context
  Device* device;
  void* before_poll[11];
  int (*poll)(CompletionQueue*, int, WorkCompletion*);
  int (*request_notification)(CompletionQueue*, int solicited_only);
  void* before_send[12];
  int (*post_send)(QueuePair*, SendRequest*, SendRequest** bad);
  int (*post_receive)(QueuePair*, ReceiveRequest*, ReceiveRequest** bad);
  void* after_receive[5];
  int command_fd;
  int async_fd;
  int vectors;
  pthread_mutex_t mutex;
  void* abi_compat;
};

struct QueuePairLimits {  // ibv_qp_cap
  std::uint32_t sends, receives, send_gathers, receive_gathers, inline_bytes;
};

struct QueuePairOptions {  // ibv_qp_init_attr
  void* user;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  Srq* srq;
  QueuePairLimits limits;
  int type;
  int signal_all;
};

struct Route {  // ibv_global_route
  std::uint64_t gid[2];
  std::uint32_t flow_label;
  std::uint8_t gid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
};

struct Address {  // ibv_ah_attr
  Route route;
  std::uint16_t lid;
  std::uint8_t service_level;
  std::uint8_t path_bits;
  std::uint8_t static_rate;
  std::uint8_t is_global;
  std::uint8_t port;
};

struct QueuePairState {  // ibv_qp_attr
  int state;
  int current_state;
  int mtu;
  int migration;
  std::uint32_t qkey;
  std::uint32_t receive_psn;
  std::uint32_t send_psn;
  std::uint32_t peer_number;
  unsigned access;
  QueuePairLimits limits;
  Address address;
  Address alternate;
  std::uint16_t pkey_index;
  std::uint16_t alternate_pkey_index;
  std::uint8_t drain_notify;
  std::uint8_t draining;
  std::uint8_t reads_out;  // max_rd_atomic
  std::uint8_t reads_in;   // max_dest_rd_atomic
  std::uint8_t min_rnr_timer;
  std::uint8_t port;
  std::uint8_t timeout;
  std::uint8_t retries;
  std::uint8_t rnr_retries;
  std::uint8_t alternate_port;
  std::uint8_t alternate_timeout;
  std::uint32_t rate_limit;
};

struct PortState {  // ibv_port_attr
  int state;
  int max_mtu;
  int active_mtu;
  int gids;
  std::uint32_t flags;
  std::uint32_t max_message;
  std::uint32_t bad_pkeys, bad_qkeys;
  std::uint16_t pkeys;
  std::uint16_t lid;
  std::uint16_t manager_lid;
  std::uint8_t lmc, virtual_lanes, manager_level, subnet_timeout, init_type;
  std::uint8_t width, speed, physical_state;
  std::uint8_t link_layer;         // 1: InfiniBand, 2: Ethernet
  std::uint8_t path_flags;         // kHeaderRequired
  std::uint8_t unused_fields[66];  // what later versions append
};

struct Limits {  // ibv_device_attr
  char firmware[64];
  std::uint64_t node_guid, system_guid, max_region, page_sizes;
  std::uint32_t vendor, part, hardware;
  int queue_pairs, requests;
  unsigned flags;
  int gathers, read_gathers, completion_queues, completions, regions, domains;
  int reads_in, ee_reads_in, total_reads_in, reads_out, ee_reads_out;
  int atomics;  // 2: atomic against the CPU too
  int rest[14];
  std::uint16_t pkeys;
  std::uint8_t ack_delay, ports;
};

struct PagingLimits {  // ibv_odp_caps
  std::uint64_t general;
  std::uint32_t reliable, unreliable, datagram;  // by type of queue pair: kPages...
};

struct ExtendedLimits {  // ibv_device_attr_ex
  Limits limits;
  std::uint32_t mask;
  PagingLimits paging;
  std::uint64_t rest[17];
};

// What lies before a context that the library extends (ibv_context in verbs_context), from the call in use on.
struct Extended {
  int (*query_device)(Context*, const void* input, ExtendedLimits*, std::size_t size);
  void* between[10];
  std::uint64_t reserved;  // by the library
  std::size_t size;        // of all this and what later versions put before it
  Context context;
};

struct Gid {  // ibv_gid_entry
  std::uint64_t gid[2];
  std::uint32_t index;
  std::uint32_t port;
  std::uint32_t type;  // 0: InfiniBand, 1: RoCE v1, 2: RoCE v2
  std::uint32_t interface;
};

struct AsyncEvent {  // ibv_async_event
  union {
    QueuePair* pair;
    int port;
  } element;
  int type;
};

enum : int { kInfinibandOrRoce = 0, kIwarp = 1 };                                         // Device::transport_type
enum : int { kReset = 0, kInit = 1, kReadyToReceive = 2, kReadyToSend = 3, kError = 6 };  // of a queue pair
enum : int { kReliable = 2, kUnreliable = 3, kDatagram = 4 };                             // its type
enum : int {
  kMaskState = 1 << 0,
  kMaskAccess = 1 << 3,
  kMaskPkey = 1 << 4,
  kMaskPort = 1 << 5,
  kMaskQkey = 1 << 6,
  kMaskAddress = 1 << 7,
  kMaskMtu = 1 << 8,
  kMaskTimeout = 1 << 9,
  kMaskRetries = 1 << 10,
  kMaskRnrRetries = 1 << 11,
  kMaskReceivePsn = 1 << 12,
  kMaskReadsOut = 1 << 13,
  kMaskMinRnrTimer = 1 << 15,
  kMaskSendPsn = 1 << 16,
  kMaskReadsIn = 1 << 17,
  kMaskPeer = 1 << 20
};
enum : int {
  kWrite = 0,
  kWriteImmediate = 1,
  kSend = 2,
  kSendImmediate = 3,
  kRead = 4,
  kCompareSwap = 5,
  kFetchAdd = 6
};  // SendRequest::opcode
enum : unsigned { kSignaled = 1 << 1, kInline = 1 << 3 };
enum : int { kSuccess = 0, kFlushed = 5, kRemoteInvalid = 9, kRemoteAccess = 10, kRetriesExceeded = 12 };  // status
enum : int { kReceived = 128, kReceivedImmediate = 129 };  // WorkCompletion::opcode
enum : unsigned { kWithImmediate = 1 << 1 };
enum : int {
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kOnDemand = 1 << 6,
  kRelaxedOrdering = 1 << 20
};                                                                          // access to a region
enum : unsigned { kPages = 1 };                                             // PagingLimits::general
enum : unsigned { kPagesWrites = 4, kPagesReads = 8, kPagesAtomics = 16 };  // and of a type
enum : int { kPortActive = 4 };
enum : unsigned { kHeaderRequired = 1 };  // PortState::path_flags: a global routing header, also on InfiniBand
enum : int {
  kEventQueueError = 0,
  kEventPairFatal = 1,
  kEventPairRequest = 2,
  kEventPairAccess = 3,
  kEventDeviceFatal = 8,
  kEventPortError = 10,
  kEventLidChange = 11,
  kEventPartitionChange = 12,
  kEventGidChange = 18
};
enum : int { kAtomicsNone = 0, kAtomicsGlobal = 2 };

}  // namespace fairway::transport::verbs::abi

#pragma once

#include <cstdint>

#include "transport/verbs/abi.h"

// The part of librdmacm's stable ABI (rdma-core's rdma/rdma_cma.h) that this transport uses, as abi.h has libibverbs'.
namespace fairway::transport::verbs::abi {

struct CmChannel {  // rdma_event_channel
  int fd;
};

struct CmId {        // rdma_cm_id, the fields that are read
  Context* context;  // of a device, opened by librdmacm itself; null: not bound to one yet
  CmChannel* channel;
  void* user;
  QueuePair* pair;  // null: the user moves its own queue pair
  std::uint64_t route[39];
  int space;
  std::uint8_t port;
};

struct CmParameters {  // rdma_conn_param
  const void* bytes;   // for the other side
  std::uint8_t size;
  std::uint8_t reads_in;
  std::uint8_t reads_out;
  std::uint8_t flow_control;
  std::uint8_t retries;
  std::uint8_t rnr_retries;
  std::uint8_t srq;
  std::uint32_t number;  // of the queue pair
};

struct CmEvent {  // rdma_cm_event, the fields that are read
  CmId* id;
  CmId* listener;  // of a request
  int type;
  int status;
  CmParameters from;  // of a request, a response or an established connection
};

enum : int { kSpaceTcp = 0x0106 };
enum : int {  // CmEvent::type
  kAddressResolved = 0,
  kRouteResolved = 2,
  kConnectRequest = 4,
  kConnectResponse = 5,
  kEstablished = 9,
  kAddressChange = 14,
  kTimeWaitExit = 15
};

}  // namespace fairway::transport::verbs::abi

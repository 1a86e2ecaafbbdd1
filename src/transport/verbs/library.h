#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fairway/status.h"

#include "transport/verbs/abi.h"

namespace fairway::transport::verbs {

std::string system_text(int error);  // the text of an errno

// The functions of libibverbs, resolved at run time. A table of plain pointers, so that tests can replace some.
// Immutable once opened.
struct Library {
  abi::Device** (*list)(int*) = nullptr;
  void (*free_list)(abi::Device**) = nullptr;
  abi::Context* (*open_device)(abi::Device*) = nullptr;
  int (*close_device)(abi::Context*) = nullptr;
  int (*query_device)(abi::Context*, abi::Limits*) = nullptr;
  int (*query_port)(abi::Context*, std::uint8_t, abi::PortState*) = nullptr;
  ssize_t (*query_gids)(abi::Context*, abi::Gid*, std::size_t most, std::uint32_t flags, std::size_t entry) = nullptr;
  int (*query_partition)(abi::Context*, std::uint8_t port, int index, std::uint16_t* key) = nullptr;
  abi::ProtectionDomain* (*alloc_domain)(abi::Context*) = nullptr;
  int (*free_domain)(abi::ProtectionDomain*) = nullptr;
  abi::MemoryRegion* (*register_region)(abi::ProtectionDomain*, void*, std::size_t, int access) = nullptr;
  // ibv_reg_mr_iova2: takes optional access flags; null in older libraries.
  abi::MemoryRegion* (*register_optional)(abi::ProtectionDomain*, void*, std::size_t, std::uint64_t,
                                          unsigned access) = nullptr;
  // ibv_reg_dmabuf_mr: memory of another device; null before rdma-core 34.
  abi::MemoryRegion* (*register_dmabuf)(abi::ProtectionDomain*, std::uint64_t offset, std::size_t,
                                        std::uint64_t address, int fd, int access) = nullptr;
  // A device's support of on-demand paging: 0, or an errno if the library or driver is too old.
  int (*query_paging)(abi::Context*, abi::PagingLimits*) = nullptr;
  int (*deregister)(abi::MemoryRegion*) = nullptr;
  abi::CompletionChannel* (*create_channel)(abi::Context*) = nullptr;
  int (*destroy_channel)(abi::CompletionChannel*) = nullptr;
  abi::CompletionQueue* (*create_queue)(abi::Context*, int, void*, abi::CompletionChannel*, int vector) = nullptr;
  int (*destroy_queue)(abi::CompletionQueue*) = nullptr;
  int (*get_event)(abi::CompletionChannel*, abi::CompletionQueue**, void** user) = nullptr;
  void (*acknowledge)(abi::CompletionQueue*, unsigned) = nullptr;
  int (*get_async_event)(abi::Context*, abi::AsyncEvent*) = nullptr;
  void (*acknowledge_async)(abi::AsyncEvent*) = nullptr;
  abi::QueuePair* (*create_pair)(abi::ProtectionDomain*, abi::QueuePairOptions*) = nullptr;
  int (*modify_pair)(abi::QueuePair*, abi::QueuePairState*, int mask) = nullptr;
  int (*destroy_pair)(abi::QueuePair*) = nullptr;
  abi::AddressHandle* (*create_address_handle)(abi::ProtectionDomain*, abi::Address*) = nullptr;  // for datagrams
  int (*destroy_address_handle)(abi::AddressHandle*) = nullptr;
  const char* (*status_text)(int) = nullptr;
  std::shared_ptr<void> handle;  // of dlopen

  static Result<Library> open();
};

// Owns a registration; destroying it ends all access. The library outlives it.
struct EndRegion {
  const Library* library = nullptr;
  void operator()(abi::MemoryRegion* region) const { library->deregister(region); }
};
using OwnRegion = std::unique_ptr<abi::MemoryRegion, EndRegion>;
// Ends it. Not 0: the errno; it is still registered, and owned.
inline int end(OwnRegion& region) {
  const int error = region ? region.get_deleter().library->deregister(region.get()) : 0;
  if (error == 0) static_cast<void>(region.release());
  return error;
}

}  // namespace fairway::transport::verbs

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

namespace fairway::transport::verbs {

// The functions of librdmacm, resolved at run time. Those that return int return -1 and set errno on failure;
// get_event() also if there is no event. Immutable once opened.
struct CmLibrary {
  abi::CmChannel* (*create_channel)() = nullptr;
  void (*destroy_channel)(abi::CmChannel*) = nullptr;
  int (*create_id)(abi::CmChannel*, abi::CmId**, void* user, int space) = nullptr;
  int (*destroy_id)(abi::CmId*) = nullptr;  // waits until all its events are acknowledged
  int (*bind)(abi::CmId*, const void* address) = nullptr;
  int (*listen)(abi::CmId*, int backlog) = nullptr;
  std::uint16_t (*source_port)(abi::CmId*) = nullptr;  // big-endian
  int (*resolve_address)(abi::CmId*, const void* source, const void* destination, int timeout_ms) = nullptr;
  int (*resolve_route)(abi::CmId*, int timeout_ms) = nullptr;
  int (*connect)(abi::CmId*, abi::CmParameters*) = nullptr;  // some devices wait for the other host
  int (*accept)(abi::CmId*, abi::CmParameters*) = nullptr;
  int (*reject)(abi::CmId*, const void* bytes, std::uint8_t size) = nullptr;
  int (*establish)(abi::CmId*) = nullptr;
  // The queue pair attributes for moving to state->state.
  int (*attributes)(abi::CmId*, abi::QueuePairState* state, int* mask) = nullptr;
  int (*get_event)(abi::CmChannel*, abi::CmEvent**) = nullptr;
  int (*acknowledge)(abi::CmEvent*) = nullptr;
  const char* (*event_text)(int) = nullptr;

  static Result<CmLibrary> open();
};

}  // namespace fairway::transport::verbs

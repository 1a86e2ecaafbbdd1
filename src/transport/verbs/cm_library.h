#pragma once

#include "fairway/status.h"

#include "transport/verbs/cm_abi.h"

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

#pragma once

#include "fairway/status.h"

#include "transport/verbs/cm_abi.h"

namespace fairway::transport::verbs {

// librdmacm's functions, found at run time, as Library has libibverbs'. Those that return an int say -1, with errno,
// where they fail; get_event() also where nothing has come. Immutable once opened.
struct CmLibrary {
  abi::CmChannel* (*create_channel)() = nullptr;
  void (*destroy_channel)(abi::CmChannel*) = nullptr;
  int (*create_id)(abi::CmChannel*, abi::CmId**, void* user, int space) = nullptr;
  int (*destroy_id)(abi::CmId*) = nullptr;  // waits until each of its events that was given out is acknowledged
  int (*bind)(abi::CmId*, const void* address) = nullptr;
  int (*listen)(abi::CmId*, int backlog) = nullptr;
  std::uint16_t (*source_port)(abi::CmId*) = nullptr;  // big-endian
  int (*resolve_address)(abi::CmId*, const void* source, const void* destination, int timeout_ms) = nullptr;
  int (*resolve_route)(abi::CmId*, int timeout_ms) = nullptr;
  int (*connect)(abi::CmId*, abi::CmParameters*) = nullptr;  // with some devices waits for the other host
  int (*accept)(abi::CmId*, abi::CmParameters*) = nullptr;
  int (*reject)(abi::CmId*, const void* bytes, std::uint8_t size) = nullptr;
  int (*establish)(abi::CmId*) = nullptr;
  // What the queue pair has to be changed to for state->state.
  int (*attributes)(abi::CmId*, abi::QueuePairState* state, int* mask) = nullptr;
  int (*get_event)(abi::CmChannel*, abi::CmEvent**) = nullptr;
  int (*acknowledge)(abi::CmEvent*) = nullptr;
  const char* (*event_text)(int) = nullptr;

  static Result<CmLibrary> open();
};

}  // namespace fairway::transport::verbs

#pragma once

#include "fairway/request.h"

#include "transport/transport.h"

namespace fairway::engine {

constexpr bool is_atomic(Operation operation) {
  return operation == Operation::fetch_add || operation == Operation::compare_swap;
}

// Those that wait for their other half at the peer.
constexpr bool is_message(Operation operation) {
  return operation == Operation::send || operation == Operation::receive;
}

// A receive of whichever peer sends first.
inline bool is_of_any(const Request& request) {
  return request.operation == Operation::receive && !request.peer;
}

// What moves the bytes of an operation. A send is a write into the window that its receive opens.
constexpr transport::Op op_of(Operation operation) {
  switch (operation) {
    case Operation::read: return transport::Op::read;
    case Operation::fetch_add: return transport::Op::fetch_add;
    case Operation::compare_swap: return transport::Op::compare_swap;
    default: return transport::Op::write;
  }
}

}  // namespace fairway::engine

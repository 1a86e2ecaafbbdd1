#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "rdma_vm/verbs_side.h"

namespace fairway::rdma_vm {

enum class Operation { send, receive, write, write_with_immediate, read, atomic };

inline constexpr std::array kOperations = {Operation::send,  Operation::receive,
                                           Operation::write, Operation::write_with_immediate,
                                           Operation::read,  Operation::atomic};

const char* name_of(Operation operation);

// What became of one operation: whether its bytes are where they belong, and if not, who said so in which words.
struct Fate {
  bool carried = false;
  std::string words;
};

// Tries the operation once on new queue pairs of the kind; an atomic has 8 bytes whatever the size. Atomics add 1.
Fate attempt(Side& from, Side& to, ibv_qp_type kind, Operation operation, std::size_t size);

}  // namespace fairway::rdma_vm

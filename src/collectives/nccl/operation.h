#pragma once

#include <span>

#include "fairway/collectives.h"

#include "collectives/nccl/library.h"

// Fairway's operations on streams as calls of NCCL.
namespace fairway::collectives::nccl {

// A communicator of NCCL's, and whose.
struct Member {
  Comm comm = nullptr;
  int rank = 0, size = 1;
};

// Whether NCCL does what that call asks for. The same on every rank.
bool can(const Collective& call);

// What it can do, and all_to_allv: NCCL's result. With the GPU's context; what is only moved is bytes.
int enqueue(const Library& library, const Collective& call, const Member& as, void* stream);
int enqueue(const Library& library, std::span<const StreamMessage> group, const Member& as, void* stream);

}  // namespace fairway::collectives::nccl

#pragma once

#include <cstdint>

#include "bench_verbs_end.h"

// Bytes of a batch: every operation has memory of its own at both ends, and bytes that no other one has.
namespace fairway::tool::bench::raw {

struct Batch {
  bool singly = false;  // one at a time, each timed; else many at once
  std::uint32_t count = 0;
  std::uint64_t seed = 0;
};

struct Verdict {
  std::uint64_t verified_bytes = 0, wrong_bytes = 0;
  std::uint64_t lost = 0;  // operations of which nothing, or not all, arrived
  std::uint64_t last = 0;  // nanoseconds of Clock, when the last one came; 0: nothing says
};

// The measuring end and the other one, before: what goes out is there, and what shall come is as different from it as
// can be.
void prepare_measuring(End& end, const Shape& shape, const Batch& batch);
void prepare_serving(End& end, const Shape& shape, const Batch& batch);
// And after `done` operations of it.
Verdict check_measuring(End& end, const Shape& shape, const Batch& batch, std::uint32_t done);
Verdict check_serving(End& end, const Shape& shape, const Batch& batch, std::uint32_t done);

// Whether the operation's last byte is in place; `back`: that of an answer.
bool has_come(End& end, const Shape& shape, const Batch& batch, std::uint32_t slot, bool back);

}  // namespace fairway::tool::bench::raw

#include "bench_verbs_batch.h"

#include <algorithm>
#include <cstring>

#include "bench_pattern.h"

namespace fairway::tool::bench::raw {
namespace {

enum : std::uint64_t { kThere = 0, kBack = 1 };  // which way bytes go

std::uint64_t seed_of(const Batch& batch, std::uint64_t way, std::uint32_t slot) {
  return (2 * batch.seed + way) << 24 | slot;
}

std::byte last_byte(const Shape& shape, std::uint64_t seed) {
  const std::uint64_t at = shape.size - 1;
  return static_cast<std::byte>(pattern(seed, at / 8) >> (8 * (at % 8)));
}

// No byte of it is as fill() leaves it.
void fill_with_others(std::byte* bytes, std::uint64_t size, std::uint64_t seed) {
  fill(bytes, size, seed);
  for (std::uint64_t i = 0; i < size; ++i) bytes[i] = ~bytes[i];
}

// What the target of an atomic holds before and after.
std::uint64_t before(const Batch& batch, std::uint32_t slot) {
  return pattern(batch.seed, 2 * std::uint64_t{slot});
}
std::uint64_t after(const Shape& shape, const Batch& batch, std::uint32_t slot) {
  return shape.action == Action::fetch_add ? 2 * before(batch, slot) : pattern(batch.seed, 2 * std::uint64_t{slot} + 1);
}

void check_word(const std::byte* at, std::uint64_t wanted, Verdict& verdict) {
  const bool right = std::memcmp(at, &wanted, sizeof wanted) == 0;
  (right ? verdict.verified_bytes : verdict.wrong_bytes) += sizeof wanted;
}

void check_whole(const std::byte* at, std::uint64_t size, std::uint64_t seed, Verdict& verdict) {
  const std::uint64_t wrong = wrong_bytes(at, size, seed);
  verdict.wrong_bytes += wrong;
  verdict.verified_bytes += size - wrong;
}

// Nothing said what arrived: a byte that is as it was before did not.
void check_unsaid(const std::byte* at, std::uint64_t size, std::uint64_t seed, Verdict& verdict) {
  if (wrong_bytes(at, size, seed) == 0) {
    verdict.verified_bytes += size;
    return;
  }
  ++verdict.lost;
  for (std::uint64_t i = 0; i < size; ++i) {
    const auto right = static_cast<std::byte>(pattern(seed, i / 8) >> (8 * (i % 8)));
    verdict.wrong_bytes += at[i] != right && at[i] != ~right ? 1 : 0;
  }
}

// Messages are in the order in which they were sent, and where one is missing the next one has its place.
void check_messages(End& end, const Shape& shape, const Batch& batch, std::uint32_t done, Verdict& verdict) {
  const std::uint32_t list = batch.singly ? 1 : shape.post_list;
  std::uint64_t came = 0;
  for (std::uint32_t pair = 0; pair < end.arrivals().size(); ++pair) {
    std::uint32_t next = 0;  // no earlier message is expected any more
    for (const Arrival& each : end.arrivals()[pair]) {
      const auto is_this = [&](std::uint32_t slot) {
        return slot / list % end.arrivals().size() == pair &&
               wrong_bytes(end.in(each.place), shape.size, seed_of(batch, kThere, slot)) == 0;
      };
      std::uint32_t slot = next;
      while (slot < done && !is_this(slot)) ++slot;
      if (slot < done && each.bytes == shape.size) {
        verdict.verified_bytes += shape.size;
        next = slot + 1;
      } else {
        verdict.wrong_bytes += shape.size;
      }
      ++came;
    }
  }
  verdict.lost += done - std::min<std::uint64_t>(done, came);
}

}  // namespace

void prepare_measuring(End& end, const Shape& shape, const Batch& batch) {
  for (std::uint32_t slot = 0; slot < batch.count; ++slot) {
    fill(end.out(slot), shape.size, seed_of(batch, kThere, slot));
    fill_with_others(end.in(slot), shape.size, seed_of(batch, kBack, slot));
  }
}

void prepare_serving(End& end, const Shape& shape, const Batch& batch) {
  for (std::uint32_t slot = 0; slot < batch.count; ++slot) {
    fill(end.out(slot), shape.size, seed_of(batch, kBack, slot));
    fill_with_others(end.in(slot), shape.size, seed_of(batch, kThere, slot));
    const std::uint64_t word = before(batch, slot);
    if (shape.atomic()) std::memcpy(end.in(slot), &word, sizeof word);
  }
}

Verdict check_measuring(End& end, const Shape& shape, const Batch& batch, std::uint32_t done) {
  Verdict verdict;
  for (std::uint32_t slot = 0; slot < done; ++slot) {
    if (shape.atomic())
      check_word(end.in(slot), before(batch, slot), verdict);
    else if (shape.action == Action::read || (batch.singly && shape.answered()))
      check_whole(end.in(slot), shape.size, seed_of(batch, kBack, slot), verdict);
  }
  return verdict;
}

Verdict check_serving(End& end, const Shape& shape, const Batch& batch, std::uint32_t done) {
  Verdict verdict;
  if (shape.action == Action::send) check_messages(end, shape, batch, done, verdict);
  if (shape.action == Action::send || shape.action == Action::read) return verdict;
  std::vector<bool> came(done, !shape.announced());
  for (const auto& pair : end.arrivals())
    for (const Arrival& each : pair)
      if (each.immediate < done) came[each.immediate] = true;
  for (std::uint32_t slot = 0; slot < done; ++slot) {
    const std::byte* const at = end.in(slot);
    const std::uint64_t seed = seed_of(batch, kThere, slot);
    if (!came[slot])
      ++verdict.lost;
    else if (shape.atomic())
      check_word(at, after(shape, batch, slot), verdict);
    else if (shape.watched())
      check_unsaid(at, shape.size, seed, verdict);
    else
      check_whole(at, shape.size, seed, verdict);
  }
  return verdict;
}

bool has_come(End& end, const Shape& shape, const Batch& batch, std::uint32_t slot, bool back) {
  const auto* last = reinterpret_cast<const std::uint8_t*>(end.in(slot) + shape.size - 1);
  const std::byte wanted = last_byte(shape, seed_of(batch, back ? kBack : kThere, slot));
  return __atomic_load_n(last, __ATOMIC_ACQUIRE) == std::to_integer<std::uint8_t>(wanted);
}

}  // namespace fairway::tool::bench::raw

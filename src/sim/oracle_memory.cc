#include <algorithm>
#include <array>
#include <cstring>

#include "sim/oracle.h"

// Arenas, and what the oracle checks of them.
namespace fairway::sim {

Arena::Arena(std::uint32_t size, Random& random)
    : size_(size),
      bytes_(size + 2 * kMargin, std::byte{0xd7}),
      shadow_(bytes_),
      blocks_(size / kBlock, Block::free),
      next_seed_(random.next()) {
  paint(0, size_, next_seed_++);
}

void Arena::paint(std::uint32_t begin, std::uint32_t length, std::uint64_t seed) {
  for (std::uint32_t i = 0; i < length; i += 8) {  // ranges consist of whole blocks
    std::uint64_t word = 0;
    const std::uint64_t mixed = ((begin + i) / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
    for (std::uint32_t k = 0; k < 8; ++k)
      word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(mixed >> (8 * k) ^ (begin + i + k))) << (8 * k);
    std::memcpy(bytes_.data() + kMargin + begin + i, &word, 8);
  }
  std::memcpy(shadow_.data() + kMargin + begin, bytes_.data() + kMargin + begin, length);
}

bool Arena::take(std::uint32_t length, Random& random, Range& out) {
  const auto need = std::max<std::uint32_t>(1, (length + kBlock - 1) / kBlock);
  const auto count = static_cast<std::uint32_t>(blocks_.size());
  if (need > count) return false;
  const auto start = static_cast<std::uint32_t>(random.below(count - need + 1));
  std::uint32_t run = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t at = (start + i) % count;
    if (at == 0) run = 0;
    run = blocks_[at] == Block::free ? run + 1 : 0;
    if (run < need) continue;
    const std::uint32_t first = at + 1 - need;
    std::fill_n(blocks_.begin() + first, need, Block::taken);
    out = {first * kBlock, need * kBlock, next_seed_++};
    paint(out.begin, out.length, out.seed);
    return true;
  }
  return false;
}

void Arena::release(Range& range) {
  if (unusable) return;
  range.seed = next_seed_++;
  paint(range.begin, range.length, range.seed);
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::free);
}

void Arena::release_as_is(const Range& range) {
  std::memcpy(shadow_.data() + kMargin + range.begin, data() + range.begin, range.length);
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::free);
}

void Arena::quarantine(const Range& range) {
  std::fill_n(blocks_.begin() + range.begin / kBlock, range.length / kBlock, Block::quarantined);
}

void Arena::reclaim() {
  unusable = false;
  std::ranges::fill(blocks_, Block::free);
  paint(0, size_, next_seed_++);
}

std::uint32_t Arena::differs(const Range& range) const {
  const std::byte* is = data() + range.begin;
  const std::byte* was = shadow_.data() + kMargin + range.begin;
  return static_cast<std::uint32_t>(std::mismatch(is, is + range.length, was).first - is);
}

std::string Arena::check() const {
  if (unusable) return {};
  const std::size_t after = kMargin + size_;
  if (std::memcmp(bytes_.data(), shadow_.data(), kMargin) != 0 ||
      std::memcmp(bytes_.data() + after, shadow_.data() + after, kMargin) != 0)
    return "a byte next to the region changed";
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const std::size_t at = kMargin + block * kBlock;
    if (blocks_[block] == Block::free && std::memcmp(bytes_.data() + at, shadow_.data() + at, kBlock) != 0) {
      const auto* is = bytes_.data() + at;
      const auto byte = std::mismatch(is, is + kBlock, shadow_.data() + at).first - is;
      return "byte " + std::to_string(block * kBlock + static_cast<std::size_t>(byte)) +
             " changed, although no transfer may touch it";
    }
  }
  return {};
}

// Ownership and expected content of memory: for completed transfers, and for memory that was reported free.

namespace {
bool one_sided(Operation operation) {
  return operation == Operation::write || operation == Operation::read;
}
}  // namespace

// Checks that the bytes of each piece arrived, that all bytes between them are unchanged, and that the source is.
void Oracle::check_moved(Job& job, Arena& source, const Arena::Range& from, Arena& target, const Arena::Range& to) {
  const bool is_read = job.operation == Operation::read;
  std::array<bool, 1 << 14> covered{};
  for (const Job::Piece& piece : job.pieces) {
    const std::uint32_t at = to.begin + (is_read ? piece.local : piece.remote);
    const std::uint32_t origin = from.begin + (is_read ? piece.remote : piece.local);
    for (std::uint32_t i = 0; i < piece.length; ++i) {
      covered[at - to.begin + i] = true;
      if (target.data()[at + i] == pattern(from.seed, origin + i)) continue;
      return fail(describe(job) + " is ok, but byte " + std::to_string(at + i) + " did not arrive");
    }
  }
  for (std::uint32_t i = 0; i < to.length; ++i)
    if (!covered[i] && target.data()[to.begin + i] != pattern(to.seed, to.begin + i))
      return fail(describe(job) + " touched byte " + std::to_string(to.begin + i) + ", which is outside its pieces");
  if (from.length != 0 && source.differs(from) != from.length) fail(describe(job) + " changed its source");
}

// Checks a failed transfer: each byte is unchanged, or what the source held during the transfer. This detects reads
// after a fence.
void Oracle::check_mixed(Job& job, const Arena::Range& from, Arena& target, const Arena::Range& to) {
  const bool is_read = job.operation == Operation::read;
  for (const Job::Piece& piece : job.pieces) {
    const std::uint32_t at = to.begin + (is_read ? piece.local : piece.remote);
    const std::uint32_t origin = from.begin + (is_read ? piece.remote : piece.local);
    for (std::uint32_t i = 0; i < piece.length; ++i) {
      const std::byte is = target.data()[at + i];
      if (is == pattern(to.seed, at + i) || is == pattern(from.seed, origin + i)) continue;
      if (job.garbled == job.local->data() + job.local_range.begin + piece.local + i) continue;
      return fail(describe(job) + " failed, and byte " + std::to_string(at + i) +
                  " is neither the old value nor the source's");
    }
  }
}

// Decides who owns which bytes now. A new pattern detects late frames.
void Oracle::settle_memory(Job& job, const Status& status) {
  if (job.settled) return;
  job.settled = true;
  Arena::Range& near = job.local_range;
  Arena::Range& far = job.remote_range;
  const bool here = job.local != nullptr && near.length != 0 && !job.local->unusable;
  const bool there = job.remote != nullptr && far.length != 0 && !job.remote->unusable && !job.to->dead;
  if (one_sided(job.operation) && job.length != 0) {
    if (job.operation == Operation::write && there)
      status ? check_moved(job, *job.local, near, *job.remote, far) : check_mixed(job, near, *job.remote, far);
    if (job.operation == Operation::read && here)
      status ? check_moved(job, *job.remote, far, *job.local, near) : check_mixed(job, far, *job.local, near);
  }
  const bool changes_far = job.operation == Operation::write || job.operation == Operation::fetch_add;
  if (!status && changes_far && job.length != 0 && there) {
    if (status.effect() == Effect::not_applied && job.remote->differs(far) != far.length)
      fail(describe(job) + " says not_applied, but byte " + std::to_string(job.remote->differs(far)) + " changed");
    if (status.effect() == Effect::partial) job.remote->release_as_is(far);
    if (status.effect() == Effect::unknown) job.remote->quarantine(far);
    if (status.effect() != Effect::not_applied) far.length = 0;
  }
  if (job.local != nullptr && near.length != 0) job.local->release(near);
  if (job.remote != nullptr && far.length != 0) job.remote->release(far);
}

// What cancel() itself promises; it may return before the completion is seen.
void Oracle::cancelled(Job& job, const Cancelled& result) {
  job.cancelled = true;
  simulation_.note(job.from->host->index(), [&] {
    return describe(job) + " cancelled: " + (result.fenced ? "fenced" : "not fenced, held by " + result.held_by);
  });
  if (job.from->dead) return;
  ++(result.fenced ? coverage.cancels_fenced : coverage.cancels_not_fenced);
  if (!result.fenced) {
    if (result.held_by != job.to->name)
      fail(describe(job) + " is not fenced, and \"" + result.held_by + "\" is said to hold it");
    return;
  }
  if (job.settled || job.local == nullptr || job.local_range.length == 0) return;
  Arena::Range reused = job.local_range;
  job.local->release(reused);
  job.local_range.length = 0;
}

void Oracle::region_is_free(Application& app, Arena& arena) {
  for (Job& job : jobs_) {
    if (job.settled || !job.accepted || job.completed) continue;
    if (job.from == &app && job.local == &arena && app.runs())
      fail(describe(job) + " still runs, although its memory was deregistered");
    if (job.remote != &arena || job.remote_range.length == 0) continue;
    Arena::Range reused = job.remote_range;
    arena.release(reused);
    job.remote_range.length = 0;
  }
}

void Oracle::check_memory(Application& app) {
  if (app.dead) return;
  for (std::size_t i = 0; i < app.arenas.size(); ++i)
    if (const std::string what = app.arenas[i]->check(); !what.empty()) {
      fail(app.name + ", region " + std::to_string(i) + ": " + what);
      app.arenas[i]->unusable = true;  // report only once
    }
}

}  // namespace fairway::sim

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "fairway/engine.h"

#include "core/counter_ranges.h"

// What keeps a communicator's messages apart from all others: tags, which are hashes of names and the same on every
// rank, and counters.
namespace fairway::collectives {

// FNV-1a; `hash`: of what stands before it.
constexpr std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// What messages of a communicator are for: each kind has all 32 bits of numbers to itself.
enum class TagKind : std::uint8_t { message, alarm, spare, census };

// The engine's tag of a communicator's messages. The name stands last, so none is the beginning of another's.
constexpr std::uint64_t tag_of(TagKind kind, std::string_view name, std::uint32_t number = 0) {
  const char head[] = {static_cast<char>(kind), static_cast<char>(number), static_cast<char>(number >> 8),
                       static_cast<char>(number >> 16), static_cast<char>(number >> 24)};
  return hash_of(name, hash_of(std::string_view(head, sizeof head)));
}

// Counters of an engine that one communicator of this process uses, and no other that lives, nor a counter space of the
// user's. A resource; any thread.
class CounterRange {
 public:
  // So many from `first` on. Where somebody else has some of these: those behind; `exactly`: already_exists, which
  // says who.
  static Result<CounterRange> take(const Engine& engine, const std::string& name, std::uint64_t first,
                                   std::uint32_t count, bool exactly);
  CounterRange(CounterRange&&) noexcept = default;
  CounterRange& operator=(CounterRange&&) = delete;
  ~CounterRange();

  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return std::uint64_t{first_} + count_; }

  // Where counters lie that nobody chose. Below 0x80000000: a counter with that bit set has a record of its own behind
  // each write (engine/messages/notifier.h).
  static constexpr std::uint32_t kBegin = 0x40000000, kEnd = 0x80000000;

 private:
  CounterRange(std::shared_ptr<CounterRanges> ranges, std::uint32_t first, std::uint32_t count)
      : ranges_(std::move(ranges)), first_(first), count_(count) {}

  std::shared_ptr<CounterRanges> ranges_;  // null: it was moved from
  std::uint32_t first_, count_;
};

}  // namespace fairway::collectives

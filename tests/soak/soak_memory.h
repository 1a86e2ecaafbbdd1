#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "soak_plan.h"

namespace fairway::tool::soak {

// The bytes of a memory before a round: no other place, memory, process or round has the same.
std::uint64_t bytes_seed(const Settings& settings, std::uint64_t round, unsigned process, unsigned memory);
void original_bytes(std::uint64_t seed, std::uint64_t at, std::span<std::byte> out);

// A memory of this process, and what should be in it beyond its words. Owner: one thread.
class Memory {
 public:
  static Result<std::unique_ptr<Memory>> open(Engine& engine, const std::string& name, std::uint64_t bytes);

  const Region& region() const { return memory_.region; }
  const std::string& name() const { return name_; }

  Status begin(std::uint64_t seed);
  void expect(std::uint64_t at, std::span<const std::byte> bytes);
  [[nodiscard]] std::span<const std::byte> expected(std::uint64_t at, std::uint64_t length) const;
  // Nothing is known of them from now on.
  void forget(std::uint64_t at, std::uint64_t length);
  Status look(std::uint64_t at, std::span<std::byte> out) const;
  Result<std::uint64_t> word(std::uint64_t at) const;
  // By its owner: other bytes, which are then expected. What is still moved there, or from there, shows.
  Status overwrite(std::uint64_t at, std::uint64_t length);
  // Where it is not as expected; empty: nowhere.
  Result<std::string> compare();

  // Taken back, whole: the owner's alone, if it is still there.
  Status take(Engine& engine);
  [[nodiscard]] bool taken() const { return taken_; }
  Status give(Engine& engine);  // registered once more

 private:
  Memory(std::string name, bench::NamedMemory memory);
  Status put(std::uint64_t at, std::span<const std::byte> bytes) const;

  struct Range {
    std::uint64_t at, length;
  };
  const std::string name_;
  bench::NamedMemory memory_;
  std::uint64_t seed_ = 0;
  bool taken_ = false;
  std::vector<std::byte> expected_, seen_;
  std::vector<Range> unknown_;
};

}  // namespace fairway::tool::soak

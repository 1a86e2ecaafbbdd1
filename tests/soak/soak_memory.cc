#include "soak_memory.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "bench/pattern.h"

namespace fairway::tool::soak {
namespace {

constexpr std::uint64_t kOverwritten = 0x6f76657277726974;  // told apart from what was there before

}  // namespace

std::uint64_t bytes_seed(const Settings& settings, std::uint64_t round, unsigned process, unsigned memory) {
  return mixed(mixed(settings.seed, round), std::uint64_t{process} << 32 | memory);
}

void original_bytes(std::uint64_t seed, std::uint64_t at, std::span<std::byte> out) {
  std::byte* to = out.data();
  for (std::uint64_t left = out.size(); left > 0;) {
    const std::uint64_t word = bench::pattern(seed, at / 8);
    const std::uint64_t skip = at % 8, length = std::min(8 - skip, left);
    std::memcpy(to, reinterpret_cast<const std::byte*>(&word) + skip, length);
    to += length;
    at += length;
    left -= length;
  }
}

Memory::Memory(std::string name, bench::NamedMemory memory)
    : name_(std::move(name)),
      memory_(std::move(memory)),
      expected_(memory_.region.size_bytes),
      seen_(memory_.region.size_bytes) {}

Result<std::unique_ptr<Memory>> Memory::open(Engine& engine, const std::string& name, std::uint64_t bytes) {
  auto memory = bench::open_memory(engine, name, bytes, Access::all);
  if (!memory) return memory.status();
  return std::unique_ptr<Memory>(new Memory(name, std::move(*memory)));
}

Status Memory::begin(std::uint64_t seed) {
  seed_ = seed;
  unknown_.clear();
  std::fill_n(expected_.begin(), kWordBytes, std::byte{0});
  original_bytes(seed, kWordBytes, std::span(expected_).subspan(kWordBytes));
  return put(0, expected_);
}

void Memory::expect(std::uint64_t at, std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), expected_.begin() + static_cast<std::ptrdiff_t>(at));
}

std::span<const std::byte> Memory::expected(std::uint64_t at, std::uint64_t length) const {
  return std::span(expected_).subspan(at, length);
}

void Memory::forget(std::uint64_t at, std::uint64_t length) {
  unknown_.push_back({at, length});
}

Status Memory::look(std::uint64_t at, std::span<std::byte> out) const {
  if (memory_.gpu) return memory_.gpu->copy(memory_.device, out.data(), memory_.region.address + at, out.size());
  std::memcpy(out.data(), memory_.region.address + at, out.size());
  return {};
}

Status Memory::put(std::uint64_t at, std::span<const std::byte> bytes) const {
  if (memory_.gpu) return memory_.gpu->copy(memory_.device, memory_.region.address + at, bytes.data(), bytes.size());
  std::memcpy(memory_.region.address + at, bytes.data(), bytes.size());
  return {};
}

Result<std::uint64_t> Memory::word(std::uint64_t at) const {
  std::uint64_t value = 0;
  if (Status status = look(at, std::as_writable_bytes(std::span(&value, 1))); !status) return status;
  return value;
}

Status Memory::overwrite(std::uint64_t at, std::uint64_t length) {
  const auto bytes = std::span(expected_).subspan(at, length);
  original_bytes(seed_ ^ kOverwritten, at, bytes);
  return put(at, bytes);
}

Result<std::string> Memory::compare() {
  if (taken_ && name_ == "shared") return std::string();  // it went with its region
  if (Status status = look(0, seen_); !status) return status;
  for (const Range& range : unknown_)
    std::copy_n(seen_.begin() + static_cast<std::ptrdiff_t>(range.at), range.length,
                expected_.begin() + static_cast<std::ptrdiff_t>(range.at));
  const std::uint64_t begin = taken_ ? 0 : kWordBytes;
  if (std::memcmp(seen_.data() + begin, expected_.data() + begin, seen_.size() - begin) == 0) return std::string();
  std::uint64_t first = seen_.size(), last = 0, wrong = 0;
  for (std::uint64_t i = begin; i < seen_.size(); ++i) {
    if (seen_[i] == expected_[i]) continue;
    first = std::min(first, i);
    last = i;
    ++wrong;
  }
  return fmt::format("{} bytes between {} and {} are wrong", wrong, first, last);
}

Status Memory::take(Engine& engine) {
  const Status status = engine.deregister(memory_.region);
  if (!status) return status;
  taken_ = true;
  unknown_.clear();
  return name_ == "shared" ? Status() : overwrite(0, expected_.size());
}

Status Memory::give(Engine& engine) {
  const auto region = name_ == "shared" ? engine.allocate(expected_.size(), Access::all)
                                        : engine.register_memory(memory_.region.address, expected_.size(), Access::all);
  if (!region) return region.status();
  memory_.region = *region;
  taken_ = false;
  return {};
}

}  // namespace fairway::tool::soak

#pragma once

#include <cstdint>
#include <string_view>

// Hashes of names: the same on every rank.
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

}  // namespace fairway::collectives

#include "nccl_net/message.h"

#include <cstring>

namespace fairway::nccl {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHead = 4 + 4 + 4 + 4 + 4 + 8, kPlace = 4 + 4 + 8 + 8 + 4;
static_assert(kHead + kPlace * abi::kMostReceives <= kMaxNotifyMessage);

class Cursor {
 public:
  explicit Cursor(std::byte* at) : at_(at) {}
  template <class T>
  Cursor& put(T value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  template <class T>
  Cursor& get(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return *this;
  }

 private:
  std::byte* at_;
};

}  // namespace

std::span<const std::byte> format(const Message& message, MessageBytes& into) {
  Cursor cursor(into.data());
  cursor.put(kVersion).put(static_cast<std::uint8_t>(message.kind)).put(message.count).put(message.part);
  cursor.put(message.to_generation).put(message.from.index).put(message.from.generation);
  cursor.put(message.sequence).put(message.bytes);
  for (std::size_t i = 0; i < message.count; ++i) {
    const Place& place = message.places[i];
    cursor.put(place.region.slot).put(place.region.generation).put(place.offset).put(place.size).put(place.tag);
  }
  return {into.data(), kHead + kPlace * message.count};
}

std::optional<Message> parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kHead || bytes.size() > kMaxNotifyMessage) return std::nullopt;
  MessageBytes copy;
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  Cursor cursor(copy.data());
  Message message;
  std::uint8_t version = 0, kind = 0;
  cursor.get(version).get(kind).get(message.count).get(message.part);
  if (version != kVersion || kind < static_cast<std::uint8_t>(Message::Kind::hello) ||
      kind > static_cast<std::uint8_t>(Message::Kind::closed))
    return std::nullopt;
  message.kind = static_cast<Message::Kind>(kind);
  const bool posts = message.kind == Message::Kind::post;
  if (message.count > abi::kMostReceives || message.part >= abi::kMostReceives || posts != (message.count != 0) ||
      bytes.size() != kHead + kPlace * message.count)
    return std::nullopt;
  cursor.get(message.to_generation).get(message.from.index).get(message.from.generation);
  cursor.get(message.sequence).get(message.bytes);
  for (std::size_t i = 0; i < message.count; ++i) {
    Place& place = message.places[i];
    cursor.get(place.region.slot).get(place.region.generation).get(place.offset).get(place.size).get(place.tag);
    if (place.size > abi::kMostBytes) return std::nullopt;
  }
  return message;
}

std::string name_of(RegionId region) {
  return "nccl/" + std::to_string(region.slot) + "." + std::to_string(region.generation);
}

}  // namespace fairway::nccl

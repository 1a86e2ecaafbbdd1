#include "engine/messages/record_codec.h"

#include <array>

namespace fairway::engine {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(RecordType::send_direct) + 1> kNames = {
    "",
    "event",
    "counter",
    "credit",
    "send_eager",
    "send_announce",
    "send_clear",
    "send_written",
    "send_abort",
    "send_done",
    "put",
    "get",
    "atomic",
    "sum",
    "flush",
    "reply",
    "echo",
    "echo_reply",
    "event_armed",
    "event_set_off",
    "event_given_up",
    "stage_ask",
    "stage_grant",
    "stage_recall",
    "stage_end",
    "stage_put",
    "stage_get",
    "stage_done",
    "send_armed",
    "receive_posted",
    "receive_withdrawn",
    "send_direct"};

bool is_known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(RecordType::event) && type < kNames.size();
}

}  // namespace

std::string_view to_string(RecordType type) {
  const auto number = static_cast<std::uint8_t>(type);
  return is_known(number) ? kNames[number] : "unknown";
}

[[gnu::flatten]] std::optional<RecordHeader> decode_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  RecordHeader header;
  header.sequence = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint8_t>();
  header.body = reader.rest();
  if (!reader.ok() || !is_known(type)) return std::nullopt;
  header.type = static_cast<RecordType>(type);
  return header;
}

}  // namespace fairway::engine

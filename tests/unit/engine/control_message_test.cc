#include "engine/control_message.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "control/control.h"

namespace fairway::engine {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

// A message of each type, and what its parser makes of any bytes: the message written again, or nothing.
struct Kind {
  const char* name;
  MessageType type;
  Bytes bytes;
  std::function<std::optional<Bytes>(std::span<const std::byte>)> again;
};

template <class Parse>
auto rewrite(Parse parse) {
  return [parse](std::span<const std::byte> bytes) -> std::optional<Bytes> {
    const auto message = parse(bytes);
    return message ? std::optional(format(*message)) : std::nullopt;
  };
}

std::vector<Kind> kinds() {
  const Bytes some = bytes_of("some bytes");
  return {
      {"hello", MessageType::hello, format(Hello{3, 2, 64, 1024, 65536, 192, {"tcp", "verbs"}, some}),
       rewrite(parse_hello)},
      {"exchange", MessageType::exchange, format(Exchange{"tcp", some}), rewrite(parse_exchange)},
      {"link_closed", MessageType::link_closed, format(LinkClosed{"tcp", 99, 7}), rewrite(parse_link_closed)},
      {"lookup", MessageType::lookup, format(Lookup{12, "kv"}), rewrite(parse_lookup)},
      {"lookup_reply", MessageType::lookup_reply, format(LookupReply{12, 3, some}), rewrite(parse_lookup_reply)},
  };
}

TEST(ControlMessage, ComesBackAsItWas) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    ASSERT_FALSE(kind.bytes.empty());
    EXPECT_EQ(message_type(kind.bytes), kind.type);
    EXPECT_EQ(kind.again(kind.bytes), kind.bytes);
  }
}

TEST(ControlMessage, EveryTruncationIsRefused) {
  for (const Kind& kind : kinds())
    for (std::size_t length = 0; length < kind.bytes.size(); ++length) {
      const auto cut = kind.again(std::span(kind.bytes).first(length));
      // An exchange's bytes end where the message ends: a shorter one is another message, and says so.
      if (cut) {
        EXPECT_EQ(kind.type, MessageType::exchange) << kind.name << ' ' << length;
        EXPECT_EQ(cut->size(), length);
      }
    }
}

TEST(ControlMessage, EveryFlippedByteIsRefusedOrSaysWhatItSays) {
  for (const Kind& kind : kinds())
    for (std::size_t at = 1; at < kind.bytes.size(); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        Bytes bytes = kind.bytes;
        bytes[at] ^= static_cast<std::byte>(1 << bit);
        const auto again = kind.again(bytes);
        if (again) {
          EXPECT_EQ(*again, bytes) << kind.name << " byte " << at << " bit " << bit;
        }
      }
}

// 4 and 5 were to ask a peer to leave a region, which every transport does by itself.
TEST(ControlMessage, UnknownTypesAreNoMessage) {
  for (int type = 0; type < 256; ++type) {
    const std::byte byte{static_cast<std::uint8_t>(type)};
    EXPECT_EQ(message_type(std::span(&byte, 1)).has_value(), type >= 1 && type <= 7 && type != 4 && type != 5) << type;
  }
  EXPECT_FALSE(message_type({}));
}

TEST(ControlMessage, TooLongForControlIsEmptySoThatSendRefusesIt) {
  EXPECT_TRUE(format(Lookup{1, std::string(control::kMaxMessage, 'x')}).empty());
  EXPECT_FALSE(format(Lookup{1, std::string(1024, 'x')}).empty());
}

TEST(ControlMessage, AHelloWithTooManyTransportsIsRefused) {
  Hello hello;
  hello.transports.assign(32, "t");
  EXPECT_TRUE(parse_hello(format(hello)));
  hello.transports.assign(33, "t");
  EXPECT_FALSE(parse_hello(format(hello)));
}

}  // namespace
}  // namespace fairway::engine

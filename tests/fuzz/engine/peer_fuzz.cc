#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "victim.h"

using namespace fairway;
using hostile::Victim;

// A live engine and a peer that says whatever the input says. One input is a list of {what, length, bytes}: records
// (their number is put right, so that they get further than the window), raw records, control messages, events of the
// link.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ByteReader reader(std::as_bytes(std::span(data, size)));
  const auto flags = reader.get<std::uint8_t>();
  Victim victim({(flags & 1) != 0, (flags & 2) != 0, (flags & 4) == 0, true});
  for (int acts = 0; acts < 16 && reader.ok() && victim.up(); ++acts) {
    const auto what = reader.get<std::uint8_t>();
    const auto length = reader.get<std::uint8_t>();
    const auto bytes = reader.get_bytes(length);
    if (!reader.ok()) break;
    switch (what % 4) {
      case 0: {
        std::vector<std::byte> record(sizeof(std::uint32_t) + bytes.size());
        ByteWriter(record).put(victim.next_record++).put_bytes(bytes);
        victim.record(record);
        break;
      }
      case 1: victim.record(bytes); break;
      case 2: victim.message(bytes); break;
      default: {
        constexpr transport::EventKind kKinds[] = {transport::EventKind::immediate, transport::EventKind::link_down};
        ByteReader value(bytes);
        victim.event(kKinds[(what >> 2) % 2], value.get<std::uint32_t>());
      }
    }
  }
  const std::string broken = victim.close();
  if (broken.empty()) return 0;
  std::fprintf(stderr, "%s\n", broken.c_str());
  std::abort();
}

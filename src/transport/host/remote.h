#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sys/mapped_file.h"
#include "transport/handles.h"
#include "transport/host/mover.h"

namespace fairway::transport::host {

// How the bytes of a peer's region are reached, from the fastest on.
enum class Way : std::uint8_t {
  asking,    // its file is on the way: slices wait
  mapped,    // copied by this side, once
  attached,  // by the kernel, once: cross-memory attach
  bounced,   // through the ring: copied by both sides
  moved,     // a device's memory, by its engines
};

// A file of a peer's, as this side has it: whole, for all regions that lie in it.
struct PeerFile {
  std::uint32_t number = 0;
  bool writable = false;
  std::uint32_t parts = 0;  // descriptors that came
  bool asked = false;       // and not answered yet
  Way way = Way::asking;    // asking, mapped, or attached: it cannot be had
  std::shared_ptr<sys::MappedFile> map = std::make_shared<sys::MappedFile>();
  std::shared_ptr<Mover::Hold> held;        // by a device's driver
  std::shared_ptr<Mover::Foreign> foreign;  // of a device's
  std::string why;
};

// Beside each import.
struct Remote {
  Way way = Way::bounced;
  std::shared_ptr<PeerFile> file;  // null: none
  std::uint64_t offset = 0;        // of the region in it
  std::string why;                 // no better way

  // Where `length` bytes of the region lie when its file lies at `base`; null when its owner told a place outside.
  std::byte* place(std::byte* base, std::uint64_t size, std::uint64_t at, std::uint64_t length) const {
    std::uint64_t begin = 0, end = 0;
    if (__builtin_add_overflow(offset, at, &begin) || __builtin_add_overflow(begin, length, &end) || end > size)
      return nullptr;
    return base + begin;
  }
};
using Imports = ImportTable<Remote>;

}  // namespace fairway::transport::host

#pragma once

#include <cstdint>
#include <string>

#include "sys/mapped_file.h"
#include "transport/handles.h"

namespace fairway::transport::shm {

// How the bytes of a peer's region are reached, from the fastest on.
enum class Way : std::uint8_t {
  asking,    // its file is on the way: slices wait
  mapped,    // copied by this side, once
  attached,  // by the kernel, once: cross-memory attach
  bounced,   // through the ring: copied by both sides
};

// Beside each import.
struct Remote {
  Way way = Way::bounced;
  sys::MappedFile file;
  std::string why;  // no better way
};
using Imports = ImportTable<Remote>;

}  // namespace fairway::transport::shm

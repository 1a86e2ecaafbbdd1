#pragma once

#include <array>
#include <memory>
#include <string>

#include "conformance/fabric_shim.h"
#include "conformance/world.h"

namespace fairway::conformance {

// Two sides over one of libfabric's providers.
struct FabricSetting {
  std::string provider;
  ShimSetting shim{};
  std::array<std::string, 2> domains{};  // of each side, by name; empty: all that may listen
  std::string listen_host = "127.0.0.1";
};

// Null: no libfabric on this machine.
std::unique_ptr<World> make_fabric_world(const FabricSetting& setting);

// Libfabric is looked for when a claim runs, not when claims are named: some of its libraries take 0.2 s to load, and
// each test is a process.
Kind fabric_kind(const char* name, const FabricSetting& setting);

inline Slice message(const UpLink& link, transport::SliceToken token, Buffer& bytes, std::size_t size,
                     bool may_coalesce) {
  Slice made;
  made.op = Op::message;
  made.token = token;
  made.link = link.id;
  made.local = bytes.data();
  made.length = size;
  made.may_coalesce = may_coalesce;
  return made;
}

}  // namespace fairway::conformance

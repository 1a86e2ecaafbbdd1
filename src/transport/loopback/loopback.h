#pragma once

#include <memory>
#include <utility>

#include "fairway/loopback.h"

#include "core/runtime.h"
#include "transport/loopback/wire.h"

namespace fairway {

// Holds the wire that connects the engines of one process. Immutable.
class Loopback {
 public:
  explicit Loopback(std::unique_ptr<transport::loopback::Wire> wire) : wire_(std::move(wire)) {}
  transport::loopback::Wire& wire() const { return *wire_; }

 private:
  std::unique_ptr<transport::loopback::Wire> wire_;
};

namespace transport {

// One worker's transport on that wire. `regions` and `runtime` outlive it.
std::unique_ptr<Transport> open_loopback_transport(std::shared_ptr<Loopback> loopback, RegionTable& regions,
                                                   Runtime& runtime);

}  // namespace transport
}  // namespace fairway

#pragma once

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// What wakes a sleeper in another process: a descriptor that turns readable (eventfd). Its owner watches and drains it;
// who got a copy of the descriptor rings it. A resource.
class Doorbell {
 public:
  static Result<Doorbell> make();

  Doorbell() = default;
  explicit Doorbell(Fd fd) : fd_(std::move(fd)) {}  // one that a peer sent

  int fd() const { return fd_.get(); }
  void ring() const;
  void drain() const;

 private:
  Fd fd_;
};

}  // namespace fairway::sys

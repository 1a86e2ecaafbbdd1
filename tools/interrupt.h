#pragma once

#include <csignal>

#include "fairway/status.h"

namespace fairway::tool {

// While it lives, the first Ctrl-C is remembered and the second ends the process. Other processes of the tool do not
// hear it: they end with the one that started them. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] static bool came();
  // ok, or cancelled once it came.
  static Status status();

 private:
  struct ::sigaction before_ {};
};

}  // namespace fairway::tool

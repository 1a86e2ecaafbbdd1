#pragma once

#include <csignal>

#include "fairway/status.h"

namespace fairway::tool {

// While it lives, the first Ctrl-C is remembered and the second ends the process. Other processes of the tool ignore
// it: they end with the one that started them. Only one may exist.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] static bool came();
  // ok, or cancelled after Ctrl-C.
  static Status status();

 private:
  struct ::sigaction before_ {};
};

}  // namespace fairway::tool

#include "interrupt.h"

#include <unistd.h>

namespace fairway::tool {
namespace {

volatile std::sig_atomic_t came_ = 0;

void take(int) {
  if (came_ != 0) ::_exit(128 + SIGINT);
  came_ = 1;
}

}  // namespace

Interrupt::Interrupt() {
  came_ = 0;
  struct ::sigaction action {};
  action.sa_handler = take;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &before_, nullptr);
}

bool Interrupt::came() {
  return came_ != 0;
}

Status Interrupt::status() {
  return came() ? Status(ErrorCode::cancelled, "interrupted") : Status();
}

}  // namespace fairway::tool

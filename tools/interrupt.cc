#include "interrupt.h"

#include <cstdint>

#include <time.h>
#include <unistd.h>

namespace fairway::tool {
namespace {

volatile std::sig_atomic_t came_ = 0;
volatile std::int64_t came_at_ms_ = 0;

std::int64_t now_ms() {  // also in a signal handler
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// A second Ctrl-C ends the process at once. timeout(1) sends each signal twice, to the process and to its group:
// signals within 0.3 s count as one.
void take(int) {
  constexpr std::int64_t kSameMs = 300;
  if (came_ != 0 && now_ms() - came_at_ms_ > kSameMs) ::_exit(128 + SIGINT);
  if (came_ == 0) came_at_ms_ = now_ms();
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

#include "sim/fiber.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace fairway::sim {
namespace {
constexpr std::size_t kStackBytes = 256 * 1024;
}

Fiber::Fiber() : stack_(new char[kStackBytes]) {
  if (getcontext(&first_) != 0) throw std::runtime_error("getcontext failed");
  first_.uc_stack.ss_sp = stack_.get();
  first_.uc_stack.ss_size = kStackBytes;
  first_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes only ints
  makecontext(&first_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self),
              static_cast<unsigned>(self >> 32));
}

Fiber::~Fiber() = default;

void Fiber::enter(unsigned low, unsigned high) {
  reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low)->loop();
}

void Fiber::loop() {
  for (;;) {
    body_();
    body_ = nullptr;
    finished_ = true;
    pause();
  }
}

void Fiber::prepare(std::function<void()> body) {
  body_ = std::move(body);
  finished_ = false;
}

void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (entered_) _longjmp(inside_, 1);
  entered_ = true;
  setcontext(&first_);
}

void Fiber::pause() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

}  // namespace fairway::sim

#include "sim/fiber.h"

#include <algorithm>
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

namespace {
thread_local Strand* running = nullptr;
}  // namespace

Strand::Strand(Host& host) : host_(host) {
  host_.add(*this);
}

Strand::~Strand() {
  host_.remove(*this);
}

Strand* Strand::current() {
  return running;
}

void Strand::start(std::function<void()> program, Time when) {
  started_ = true;
  host_.simulation().at(
      when,
      [](void* object, std::uint64_t, std::uint64_t) {
        Strand& self = *static_cast<Strand*>(object);
        resume(object, 0, self.serial_);
      },
      this);
  fiber_.prepare(std::move(program));
}

void Strand::resume(void* object, std::uint64_t, std::uint64_t serial) {
  Strand& self = *static_cast<Strand*>(object);
  if (!self.started_ || serial != self.serial_) return;
  self.due_ = kNever;
  if (self.host_.frozen()) {
    self.woken_ = true;
    return;
  }
  self.woken_ = self.waits_ = false;
  running = &self;
  self.fiber_.resume();
  running = nullptr;
  if (self.fiber_.finished()) self.started_ = false;
}

void Strand::schedule(Time when) {
  if (when >= due_) return;
  due_ = when;
  host_.simulation().at(when, &Strand::resume, this, 0, ++serial_);
}

bool Strand::pause(Time limit) {
  if (host_.simulation().now() >= limit) return false;
  due_ = kNever;
  ++serial_;
  if (limit != kNever) schedule(limit);
  waits_ = true;
  fiber_.pause();
  return host_.simulation().now() < limit;
}

void Strand::wake() {
  if (!waits_) return;
  schedule(after(host_.simulation().now(), host_.wake_time()));
}

void Strand::thawed() {
  if (!started_ || !woken_) return;
  woken_ = false;
  schedule(after(host_.simulation().now(), host_.wake_time()));
}

}  // namespace fairway::sim

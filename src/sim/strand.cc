#include "sim/strand.h"

#include <algorithm>
#include <utility>

namespace fairway::sim {
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

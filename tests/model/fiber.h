#pragma once

#include <csetjmp>
#include <functional>
#include <memory>

#include <ucontext.h>

namespace fairway::model {

// A stack of its own that runs one function after another and can stop in the middle of it. Entered by makecontext,
// then switched by _setjmp and _longjmp, which unlike swapcontext make no system call (R. S. Engelschall, "Portable
// Multithreading", USENIX 2000). One OS thread owns it and all its switches.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Begins `body`, which must let no exception out; finished() must hold. Returns at its first pause() or its end.
  void start(std::function<void()> body);
  // Goes on after the last pause(). Returns at the next one or at the end.
  void resume();
  // From inside the body: back to whoever started or resumed.
  void pause();
  bool finished() const { return finished_; }

 private:
  static void enter(unsigned low, unsigned high);
  [[noreturn]] void loop();

  std::unique_ptr<char[]> stack_;
  ucontext_t first_{};
  std::jmp_buf inside_;
  std::jmp_buf outside_;
  std::function<void()> body_;
  bool entered_ = false;
  bool finished_ = true;
};

}  // namespace fairway::model

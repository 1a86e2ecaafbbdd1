#pragma once

#include <csetjmp>
#include <functional>
#include <memory>

#include <ucontext.h>

namespace fairway::sim {

// Built with AddressSanitizer or ThreadSanitizer, which do not follow a Fiber's switches.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFibersWork = false;
#elif defined(__has_feature)
inline constexpr bool kFibersWork = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
inline constexpr bool kFibersWork = true;
#endif

// A coroutine: its own stack, which runs one function after another and can be suspended inside a function. Entered
// with makecontext, then switched with _setjmp and _longjmp, which unlike swapcontext make no system call (R. S.
// Engelschall, "Portable Multithreading", USENIX 2000). One OS thread owns it and does all its switches.
// Only where kFibersWork.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Starts `body`, which must not throw; finished() must hold. Returns at the first pause() or at the end.
  void start(std::function<void()> body) {
    prepare(std::move(body));
    resume();
  }
  // The same, but resume() starts it.
  void prepare(std::function<void()> body);
  // Continues after the last pause(). Returns at the next pause() or at the end.
  void resume();
  // Called inside the body: switches back to the caller of start() or resume().
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

}  // namespace fairway::sim

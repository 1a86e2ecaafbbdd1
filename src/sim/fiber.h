#pragma once

#include <csetjmp>
#include <functional>
#include <memory>
#include <string>

#include <ucontext.h>

#include "sim/host.h"

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

// A program on a simulated host that calls what blocks: it runs on a stack of its own, and while it waits the
// simulation goes on. A frozen host's does not run. A host may have several, as a process has threads. Owned by the
// owner of the simulation, on its thread.
class Strand {
 public:
  explicit Strand(Host& host);
  ~Strand();  // the program must have ended
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // Runs `program` from `when` on; the one before must have ended.
  void start(std::function<void()> program, Time when);
  bool ended() const { return !started_; }
  Host& host() { return host_; }

  // ---- for the host ----
  // Called by the program: lets the simulation go on, until wake() or `limit`. False: `limit` has come.
  bool pause(Time limit);
  void wake();  // what the program waits for may be there
  void thawed();
  // The one whose program runs on this thread; null: none.
  static Strand* current();

 private:
  static void resume(void* strand, std::uint64_t, std::uint64_t serial);
  void schedule(Time when);

  Host& host_;
  Fiber fiber_;
  bool started_ = false, waits_ = false;
  bool woken_ = false;  // while its host was frozen
  Time due_ = kNever;   // of the one valid event
  std::uint64_t serial_ = 0;
};

}  // namespace fairway::sim

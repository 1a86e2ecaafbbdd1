#pragma once

#include <functional>
#include <string>

#include "sim/fiber.h"
#include "sim/host.h"

namespace fairway::sim {

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

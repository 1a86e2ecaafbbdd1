#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/memory.h"
#include "sim/fiber.h"

namespace fairway::model {

// A small concurrent program, constructed anew for each interleaving. Construction, finish() and destruction run as
// thread 0. run(1), run(2), ... are the threads; they must end (to wait, use Event::wait).
class Program {
 public:
  virtual ~Program() = default;
  virtual void run(unsigned thread) = 0;
  virtual void finish() {}
};

struct Options {
  unsigned threads = 2;
  unsigned stale_reads = 3;                   // see Memory::reset
  std::uint64_t max_executions = 20'000'000;  // exceeding it is a failure, not a silent end
  bool reduce = true;                         // skip equivalent interleavings
  // Weakens the program's operations: plants a bug that must be found.
  std::function<void(Operation&)> mutate = nullptr;
};

struct Outcome {
  std::uint64_t executions = 0;  // interleavings (with the values read) run to their end; no two are equivalent
  std::uint64_t pruned = 0;      // abandoned because an equivalent interleaving was run before
  std::uint64_t operations = 0;
  std::string failure;  // empty, or the error and the interleaving that leads to it
  bool ok() const { return failure.empty(); }
};

// Runs a program through every interleaving of its atomic operations and every value that each load may read: a
// depth-first search that reruns the program for each. Sleep sets (P. Godefroid, LNCS 1032, 1996) skip interleavings
// that differ only in the order of independent operations. The search still finds every failed check, data race and
// deadlock, because the order of independent operations cannot hide one. One OS thread.
class Explorer {
 public:
  explicit Explorer(Options options);
  ~Explorer();
  Outcome run(const std::function<std::unique_ptr<Program>()>& make);

  // The explorer that runs on this OS thread: the atomics' policy has no other way to find it.
  static Explorer& current();

  // Called by the atomics. Stops the calling thread before the operation, which a mutant may change, and returns the
  // value read.
  std::uint64_t step(Operation& operation);
  Memory& memory() { return memory_; }
  unsigned thread() const { return thread_; }
  // Records a failure of this interleaving; only the first counts.
  void fail(const std::string& message);

 private:
  struct Decision {
    unsigned thread;
    unsigned choice;
    unsigned choices;  // 0: not counted yet
    unsigned enabled;
    unsigned sleeping;  // explored before, in an equivalent order
    unsigned tried;     // explored from here
  };
  struct Done {
    Operation operation;
    std::uint64_t value;
    unsigned choice;
  };
  enum class End { complete, pruned, failed };

  End run_once(const std::function<std::unique_ptr<Program>()>& make);
  End schedule();
  void guarded(const std::function<void()>& body);
  void abandon();
  bool backtrack();
  std::string trace() const;
  static unsigned pick(unsigned mask, unsigned preferred);

  Options options_;
  Memory memory_;
  std::vector<std::unique_ptr<sim::Fiber>> fibers_;
  std::vector<Operation> pending_;
  std::vector<Decision> path_;
  std::vector<Done> done_;
  std::uint64_t result_ = 0;
  unsigned thread_ = 0;
  bool abandoning_ = false;
  std::string failure_;
  Outcome outcome_;
};

// Checks an invariant of the program. When it is false, this interleaving fails.
void require(bool holds, const char* message);

}  // namespace fairway::model

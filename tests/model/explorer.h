#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/fiber.h"
#include "model/memory.h"

namespace fairway::model {

// A small concurrent program, made anew for each interleaving. Construction, finish() and destruction are thread 0;
// run(1), run(2), ... are the threads, which must end (a wait is Event::wait).
class Program {
 public:
  virtual ~Program() = default;
  virtual void run(unsigned thread) = 0;
  virtual void finish() {}
};

struct Options {
  unsigned threads = 2;
  unsigned stale_reads = 3;                          // see Memory::reset
  std::uint64_t max_executions = 20'000'000;         // more is a failure, not a silent end
  bool reduce = true;                                // leave out equivalent interleavings
  std::function<void(Operation&)> mutate = nullptr;  // weakens the program's operations: a bug that must be found
};

struct Outcome {
  std::uint64_t executions = 0;  // interleavings (with the values read) run to their end; no two are equivalent
  std::uint64_t pruned = 0;      // given up because an equivalent one had been run
  std::uint64_t operations = 0;
  std::string failure;  // empty, or what went wrong and the interleaving that leads there
  bool ok() const { return failure.empty(); }
};

// Runs a program through every interleaving of its atomic operations and every value that each may read, by depth-first
// search that runs the program again for each. Sleep sets (P. Godefroid, LNCS 1032, 1996) leave out interleavings that
// differ only in the order of independent operations; what no order of independent operations can hide is therefore
// found: failed checks, data races, threads that wait for ever. One OS thread.
class Explorer {
 public:
  explicit Explorer(Options options);
  ~Explorer();
  Outcome run(const std::function<std::unique_ptr<Program>()>& make);

  // The one at work on this OS thread: the atomics' policy has no other way to find it.
  static Explorer& current();

  // For the atomics: stops the calling thread before the operation, which a mutant may change, and returns what it
  // read.
  std::uint64_t step(Operation& operation);
  Memory& memory() { return memory_; }
  unsigned thread() const { return thread_; }
  // Notes a failure of this interleaving; the first counts.
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
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Operation> pending_;
  std::vector<Decision> path_;
  std::vector<Done> done_;
  std::uint64_t result_ = 0;
  unsigned thread_ = 0;
  bool abandoning_ = false;
  std::string failure_;
  Outcome outcome_;
};

// Checks an invariant of the program; a false one ends this interleaving as a failure.
void require(bool holds, const char* message);

}  // namespace fairway::model

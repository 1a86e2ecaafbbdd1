#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "model/explorer.h"
#include "model/model_atomics.h"

namespace fairway::model {

template <class P, class... Args>
std::function<std::unique_ptr<Program>()> maker(Args... args) {
  return [=] { return std::make_unique<P>(args...); };
}

// Explores and prints how much that was.
inline Outcome explore(const char* name, const Options& options,
                       const std::function<std::unique_ptr<Program>()>& make) {
  const Outcome outcome = Explorer(options).run(make);
  std::printf("[ model    ] %-44s %9llu interleavings, %llu pruned, %llu operations\n", name,
              static_cast<unsigned long long>(outcome.executions), static_cast<unsigned long long>(outcome.pruned),
              static_cast<unsigned long long>(outcome.operations));
  return outcome;
}

// A deliberate bug: the operations that `applies` to are changed by `change`. It must be found.
struct Mutant {
  const char* name;
  std::function<bool(const Operation&)> applies;
  std::function<void(Operation&)> change;
};

// A bug that the program itself has.
inline Mutant swapped(const char* name) {
  return {name, [](const Operation&) { return true; }, [](Operation&) {}};
}

inline void relax(Operation& operation) {
  operation.order = std::memory_order_relaxed;
  operation.failure_order = std::memory_order_relaxed;
}
inline void weaken_to_acq_rel(Operation& operation) {
  operation.order = std::memory_order_acq_rel;
}

inline auto stores(std::memory_order order) {
  return [order](const Operation& op) { return op.kind == Kind::store && op.order == order; };
}
inline auto loads(std::memory_order order) {
  return [order](const Operation& op) { return op.kind == Kind::load && op.order == order; };
}
inline auto fences(std::memory_order order) {
  return [order](const Operation& op) { return op.kind == Kind::fence && op.order == order; };
}
template <class Predicate>
auto by(unsigned thread, Predicate predicate) {
  return [=](const Operation& op) { return op.thread == thread && predicate(op); };
}

inline void expect_caught(Options options, const Mutant& mutant,
                          const std::function<std::unique_ptr<Program>()>& make) {
  bool applied = false;
  options.mutate = [&](Operation& operation) {
    if (!mutant.applies(operation)) return;
    applied = true;
    mutant.change(operation);
  };
  const Outcome outcome = Explorer(options).run(make);
  EXPECT_TRUE(applied) << mutant.name << ": the program has no such operation any more";
  EXPECT_FALSE(outcome.ok()) << mutant.name << ": not found in " << outcome.executions << " interleavings";
  const std::string what = outcome.failure.substr(0, outcome.failure.find('\n'));
  std::printf("[ mutant   ] %-52s %7llu: %s\n", mutant.name, static_cast<unsigned long long>(outcome.executions + 1),
              what.c_str());
}

}  // namespace fairway::model

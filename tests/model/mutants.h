#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/explorer.h"
#include "model/model_atomics.h"

namespace fairway::model {

template <class P, class... Args>
std::function<std::unique_ptr<Program>()> maker(Args... args) {
  return [=] { return std::make_unique<P>(args...); };
}

// Explores the program and prints the number of interleavings.
inline Outcome explore(const char* name, const Options& options,
                       const std::function<std::unique_ptr<Program>()>& make) {
  const Outcome outcome = Explorer(options).run(make);
  std::printf("[ model    ] %-44s %9llu interleavings, %llu pruned, %llu operations\n", name,
              static_cast<unsigned long long>(outcome.executions), static_cast<unsigned long long>(outcome.pruned),
              static_cast<unsigned long long>(outcome.operations));
  return outcome;
}

inline std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// A planted bug: `change` is applied to the operations that `applies` selects. The explorer must find it.
struct Mutant {
  const char* name;
  std::function<bool(const Operation&)> applies;
  std::function<void(Operation&)> change;
};

// A bug in the program itself.
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
  std::printf("[ mutant   ] %-52s %7llu: %s\n", mutant.name, static_cast<unsigned long long>(outcome.executions + 1),
              first_line(outcome.failure).c_str());
}

// Relaxes each memory order that `header` asks for, one at a time. Returns those that no program needed, as "kind
// order" in the order of the header's lines.
inline std::vector<std::string> orders_not_needed(
    const char* header, const std::vector<std::pair<Options, std::function<std::unique_ptr<Program>()>>>& programs) {
  using Site = std::tuple<unsigned, bool, std::string>;  // line, whether it is the order for failure, text
  const auto is_in = [header](const Operation& op) { return std::string_view(op.file).ends_with(header); };
  std::set<Site> sites;
  for (auto [options, make] : programs) {
    options.mutate = [&](Operation& op) {
      const std::string text = to_string(op);
      const std::string what = text.substr(text.find(": ") + 2);
      if (is_in(op) && op.order != std::memory_order_relaxed) sites.emplace(op.line, false, what);
      if (is_in(op) && op.failure_order != std::memory_order_relaxed) sites.emplace(op.line, true, what);
    };
    EXPECT_EQ(Explorer(options).run(make).failure, "");
  }
  std::vector<std::string> survivors;
  std::set<std::pair<unsigned, bool>> done;
  for (const auto& [line, for_failure, text] : sites) {
    if (!done.emplace(line, for_failure).second) continue;
    std::string caught;
    for (auto [options, make] : programs) {
      options.mutate = [&, l = line, f = for_failure](Operation& op) {
        if (is_in(op) && op.line == l) (f ? op.failure_order : op.order) = std::memory_order_relaxed;
      };
      if (caught.empty()) caught = first_line(Explorer(options).run(make).failure);
    }
    std::printf("[ order    ] %s line %u%s relaxed: %s\n", header, line, for_failure ? " (failure)" : "",
                caught.empty() ? "not noticed" : caught.c_str());
    if (caught.empty()) survivors.push_back(text);
  }
  return survivors;
}

}  // namespace fairway::model

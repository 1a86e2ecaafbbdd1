#include "model/explorer.h"

#include <bit>
#include <stdexcept>

namespace fairway::model {
namespace {

constexpr std::size_t kMaxDepth = 1000;

struct Abandoned {};  // unwinds a thread whose interleaving was pruned or has failed

Explorer*& at_work() {
  static thread_local Explorer* explorer = nullptr;
  return explorer;
}

constexpr unsigned bit(unsigned thread) {
  return 1u << thread;
}

}  // namespace

Explorer::Explorer(Options options) : options_(std::move(options)), pending_(options_.threads + 1) {
  if (options_.threads + 1 > kMaxThreads) throw std::invalid_argument("too many threads for the model");
  for (unsigned i = 0; i <= options_.threads; ++i) fibers_.push_back(i == 0 ? nullptr : std::make_unique<sim::Fiber>());
}

Explorer::~Explorer() = default;

Explorer& Explorer::current() {
  if (!at_work()) throw std::logic_error("a model's atomic is used outside of an exploration");
  return *at_work();
}

Outcome Explorer::run(const std::function<std::unique_ptr<Program>()>& make) {
  at_work() = this;
  outcome_ = {};
  path_.clear();
  do {
    switch (run_once(make)) {
      case End::complete: ++outcome_.executions; break;
      case End::pruned: ++outcome_.pruned; break;
      case End::failed: outcome_.failure = failure_; break;
    }
    outcome_.operations += done_.size();
    if (outcome_.executions == options_.max_executions) outcome_.failure = "more interleavings than max_executions";
  } while (outcome_.ok() && backtrack());
  at_work() = nullptr;
  return outcome_;
}

Explorer::End Explorer::run_once(const std::function<std::unique_ptr<Program>()>& make) {
  memory_.reset(options_.threads, options_.stale_reads);
  done_.clear();
  failure_.clear();
  thread_ = 0;
  auto program = make();
  memory_.start_threads();
  for (unsigned t = 1; t <= options_.threads; ++t) {
    thread_ = t;
    fibers_[t]->start([this, t, &program] { guarded([&] { program->run(t); }); });
  }
  const End end = schedule();
  thread_ = 0;
  if (end == End::complete) {
    memory_.join_threads();
    guarded([&] { program->finish(); });
  } else {
    abandon();
  }
  // After a failed interleaving the objects may be in any state; checks in their destructors prove nothing.
  abandoning_ = end != End::complete || !failure_.empty();
  thread_ = 0;
  program.reset();
  abandoning_ = false;
  return failure_.empty() ? end : End::failed;
}

Explorer::End Explorer::schedule() {
  unsigned sleeping = 0;
  unsigned last = 1;
  for (std::size_t depth = 0; failure_.empty(); ++depth) {
    if (depth == kMaxDepth) fail("the program does not end");
    unsigned enabled = 0;
    bool all_finished = true;
    for (unsigned t = 1; t <= options_.threads; ++t) {
      if (fibers_[t]->finished()) continue;
      all_finished = false;
      if (memory_.possible(pending_[t])) enabled |= bit(t);
    }
    if (all_finished) return End::complete;
    if (enabled == 0) {
      thread_ = 0;
      fail("every thread that has not ended waits for ever");
      break;
    }
    if (depth == path_.size()) {
      if ((enabled & ~sleeping) == 0) return End::pruned;
      path_.push_back(Decision{pick(enabled & ~sleeping, last), 0, 0, enabled, sleeping, 0});
    }
    Decision& decision = path_[depth];
    last = decision.thread;
    const Operation chosen = pending_[last];
    sleeping = 0;
    for (unsigned t = 1; t <= options_.threads; ++t)
      if (options_.reduce && ((decision.sleeping | decision.tried) & bit(t)) && independent(pending_[t], chosen))
        sleeping |= bit(t);
    if (decision.choices == 0) decision.choices = memory_.choices(chosen);
    result_ = memory_.perform(chosen, decision.choice);
    done_.push_back(Done{chosen, result_, decision.choice});
    thread_ = last;
    fibers_[last]->resume();
  }
  return End::failed;
}

std::uint64_t Explorer::step(Operation& operation) {
  operation.thread = thread_;
  if (thread_ == 0 || abandoning_) return memory_.perform(operation, 0);
  if (options_.mutate) options_.mutate(operation);
  const unsigned self = thread_;
  pending_[self] = operation;
  fibers_[self]->pause();
  if (abandoning_) throw Abandoned();
  return result_;
}

void Explorer::guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (const Abandoned&) {
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void Explorer::abandon() {
  abandoning_ = true;
  for (unsigned t = 1; t <= options_.threads; ++t) {
    thread_ = t;
    if (!fibers_[t]->finished()) fibers_[t]->resume();
  }
  abandoning_ = false;
}

// Moves to the next interleaving: the next value for the deepest decision, else its next thread, else one decision up.
bool Explorer::backtrack() {
  for (; !path_.empty(); path_.pop_back()) {
    Decision& decision = path_.back();
    if (++decision.choice < decision.choices) return true;
    decision.tried |= bit(decision.thread);
    const unsigned left = decision.enabled & ~decision.sleeping & ~decision.tried;
    if (left == 0) continue;
    decision = Decision{pick(left, 0), 0, 0, decision.enabled, decision.sleeping, decision.tried};
    return true;
  }
  return false;
}

unsigned Explorer::pick(unsigned mask, unsigned preferred) {
  return (mask & bit(preferred)) ? preferred : static_cast<unsigned>(std::countr_zero(mask));
}

void Explorer::fail(const std::string& message) {
  if (!failure_.empty() || abandoning_) return;
  failure_ = (thread_ == 0 ? "" : "thread " + std::to_string(thread_) + ": ") + message + "\n" + trace();
}

std::string Explorer::trace() const {
  std::string text;
  for (const Done& done : done_) {
    text += "  " + to_string(done.operation) + " = " + std::to_string(static_cast<std::int64_t>(done.value));
    if (done.choice != 0) text += ", " + std::to_string(done.choice) + " behind the newest";
    text += "\n";
  }
  return text;
}

void require(bool holds, const char* message) {
  if (holds) return;
  Explorer::current().fail(message);
  throw Abandoned();
}

}  // namespace fairway::model

#include "model/memory.h"

#include <algorithm>
#include <stdexcept>

namespace fairway::model {
namespace {

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst || order == std::memory_order_consume;
}
bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool sequential(const Operation& operation) {
  return operation.order == std::memory_order_seq_cst;
}

template <class Array>
void join_max(Array& into, const Array& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::string name(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed: return "relaxed";
    case std::memory_order_consume: return "consume";
    case std::memory_order_acquire: return "acquire";
    case std::memory_order_release: return "release";
    case std::memory_order_acq_rel: return "acq_rel";
    case std::memory_order_seq_cst: return "seq_cst";
  }
  return "?";
}

}  // namespace

std::string to_string(const Operation& operation) {
  static constexpr std::array<const char*, 7> kNames{"load",  "store", "exchange", "fetch_add", "compare_exchange",
                                                     "fence", "await"};
  std::string text =
      "thread " + std::to_string(operation.thread) + ": " + kNames[static_cast<std::size_t>(operation.kind)];
  if (operation.kind != Kind::fence) text += " #" + std::to_string(operation.location);
  return text + " " + name(operation.order);
}

bool independent(const Operation& a, const Operation& b) {
  if (a.kind == Kind::fence || b.kind == Kind::fence) return !(sequential(a) && sequential(b));
  if (a.location != b.location) return true;
  return !a.writes() && !b.writes() && !(sequential(a) && sequential(b));
}

void Memory::Knowledge::join(const Knowledge& other) {
  join_max(view, other.view);
  join_max(clock, other.clock);
}

void Memory::reset(unsigned threads, unsigned stale_reads) {
  threads_ = threads;
  stale_reads_ = stale_reads;
  for (unsigned i = 0; i < locations_; ++i) history_[i].clear();
  locations_ = 0;
  for (unsigned i = 0; i <= threads_; ++i) {
    thread_[i] = Thread{};
    thread_[i].now.clock[i] = 1;
  }
  sequential_ = View{};
  plain_.clear();
}

unsigned Memory::add_location(std::uint64_t initial) {
  if (locations_ == kMaxLocations) throw std::length_error("the model has no room for another atomic");
  history_[locations_].push_back(Store{initial, thread_[0].now});
  return locations_++;
}

void Memory::start_threads() {
  for (unsigned i = 1; i <= threads_; ++i) thread_[i].now.join(thread_[0].now);
  ++thread_[0].now.clock[0];
}

void Memory::join_threads() {
  for (unsigned i = 1; i <= threads_; ++i) thread_[0].now.join(thread_[i].now);
}

bool Memory::possible(const Operation& operation) const {
  return operation.kind != Kind::await_nonzero || history_[operation.location].back().value != 0;
}

std::size_t Memory::oldest(const Operation& operation) const {
  const auto known = thread_[operation.thread].now.view[operation.location];
  return sequential(operation) ? std::max(known, sequential_[operation.location]) : known;
}

// A read-modify-write reads the newest value. A strong compare-and-swap may fail only on a different value.
bool Memory::readable(const Operation& operation, std::size_t index) const {
  const auto& history = history_[operation.location];
  if (index + 1 == history.size()) return true;
  if (operation.kind != Kind::load && operation.kind != Kind::compare_exchange) return false;
  if (operation.kind == Kind::compare_exchange &&
      (operation.always_succeeds || history[index].value == operation.expected))
    return false;
  const Thread& thread = thread_[operation.thread];
  return index != thread.last_read[operation.location] || thread.stale_reads[operation.location] < stale_reads_;
}

unsigned Memory::choices(const Operation& operation) const {
  if (operation.kind == Kind::fence || operation.kind == Kind::store) return 1;
  unsigned count = 0;
  for (std::size_t i = oldest(operation); i < history_[operation.location].size(); ++i) count += readable(operation, i);
  return count;
}

std::uint64_t Memory::perform(const Operation& operation, unsigned choice) {
  Thread& thread = thread_[operation.thread];
  std::uint64_t value = operation.operand;
  if (operation.kind == Kind::fence) {
    fence(operation);
  } else if (operation.kind == Kind::store) {
    append(operation, value, nullptr);
  } else {
    const auto& history = history_[operation.location];
    std::size_t index = history.size() - 1;
    for (unsigned skipped = 0; skipped < choice; skipped += readable(operation, index)) --index;
    value = history[index].value;
    const bool fails =
        operation.kind == Kind::compare_exchange && value != operation.expected && !operation.always_succeeds;
    observe(operation, index, fails ? operation.failure_order : operation.order);
    if (operation.kind != Kind::load && !fails) {
      const Knowledge continued = history[index].released;  // continues the release sequence
      const std::uint64_t written = operation.kind == Kind::add             ? value + operation.operand
                                    : operation.kind == Kind::await_nonzero ? 0
                                                                            : operation.operand;
      append(operation, written, &continued);
    }
  }
  ++thread.now.clock[operation.thread];
  return value;
}

void Memory::observe(const Operation& operation, std::size_t index, std::memory_order order) {
  Thread& thread = thread_[operation.thread];
  const unsigned at = operation.location;
  const bool again = thread.last_read[at] == index && index + 1 < history_[at].size();
  thread.stale_reads[at] = again ? static_cast<std::uint16_t>(thread.stale_reads[at] + 1) : std::uint16_t{0};
  thread.last_read[at] = static_cast<std::uint16_t>(index);
  thread.now.view[at] = static_cast<std::uint16_t>(index);
  (acquires(order) ? thread.now : thread.at_acquire_fence).join(history_[at][index].released);
  if (sequential(operation)) sequential_[at] = std::max(sequential_[at], static_cast<std::uint16_t>(index));
}

void Memory::append(const Operation& operation, std::uint64_t value, const Knowledge* continues) {
  Thread& thread = thread_[operation.thread];
  const unsigned at = operation.location;
  const auto index = static_cast<std::uint16_t>(history_[at].size());
  thread.now.view[at] = index;
  Store store{value, releases(operation.order) ? thread.now : thread.at_release_fence};
  if (continues) store.released.join(*continues);
  history_[at].push_back(store);
  if (sequential(operation)) sequential_[at] = index;
}

// Sequentially consistent fences have one total order, the order of execution. Each passes on its thread's view of
// every location, but synchronizes nothing (the clocks stay).
void Memory::fence(const Operation& operation) {
  Thread& thread = thread_[operation.thread];
  if (acquires(operation.order)) thread.now.join(thread.at_acquire_fence);
  if (sequential(operation)) {
    join_max(thread.now.view, sequential_);
    sequential_ = thread.now.view;
  }
  if (releases(operation.order)) thread.at_release_fence = thread.now;
}

Memory::Plain& Memory::plain(const void* address) {
  for (Plain& known : plain_)
    if (known.address == address) return known;
  plain_.push_back(Plain{});
  plain_.back().address = address;
  return plain_.back();
}

std::string Memory::check_write(unsigned thread, Plain& at) const {
  const Clock& clock = thread_[thread].now.clock;
  if (at.write_step > clock[at.writer])
    return "data race: a write beside a write of thread " + std::to_string(at.writer);
  for (unsigned other = 0; other <= threads_; ++other)
    if (at.read_steps[other] > clock[other])
      return "data race: a write beside a read of thread " + std::to_string(other);
  at.writer = thread;
  at.write_step = clock[thread];
  return {};
}

std::string Memory::construct(unsigned thread, const void* address) {
  Plain& at = plain(address);
  if (at.alive) return "an object was constructed over a living one";
  at.alive = true;
  return check_write(thread, at);
}

std::string Memory::destroy(unsigned thread, const void* address) {
  Plain& at = plain(address);
  if (!at.alive) return "an object was destroyed twice";
  at.alive = false;
  return check_write(thread, at);
}

std::string Memory::write(unsigned thread, const void* address) {
  Plain& at = plain(address);
  if (!at.alive) return "a write to an object that does not exist";
  return check_write(thread, at);
}

std::string Memory::read(unsigned thread, const void* address) {
  Plain& at = plain(address);
  const Clock& clock = thread_[thread].now.clock;
  if (!at.alive) return "a read of an object that does not exist";
  at.read_steps[thread] = clock[thread];
  if (at.write_step > clock[at.writer])
    return "data race: a read beside a write of thread " + std::to_string(at.writer);
  return {};
}

}  // namespace fairway::model

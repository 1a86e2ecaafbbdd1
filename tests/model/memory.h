#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fairway::model {

inline constexpr unsigned kMaxThreads = 5;  // thread 0 constructs the program and finishes it
inline constexpr unsigned kMaxLocations = 24;

enum class Kind : std::uint8_t { load, store, exchange, add, compare_exchange, fence, await_nonzero };

// One step of a thread. await_nonzero is a wait in the kernel: it is enabled once the newest value is not zero, and
// takes that value.
struct Operation {
  unsigned thread = 0;
  Kind kind = Kind::fence;
  unsigned location = 0;
  std::memory_order order = std::memory_order_relaxed;
  std::memory_order failure_order = std::memory_order_relaxed;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
  bool always_succeeds = false;  // a mutant of compare_exchange that does not compare
  const char* file = "";         // source location in the program
  unsigned line = 0;

  bool writes() const { return kind != Kind::load && kind != Kind::fence; }
};

std::string to_string(const Operation& operation);
// True when two operations of different threads commute: the same result in either order, and neither enables or
// disables the other.
bool independent(const Operation& a, const Operation& b);

// An executable model of C++20 memory. Each atomic keeps the history of its stores in modification order. A load may
// return any store that is not older than what its thread knows: what it read, wrote, or acquired from others (J. Kang
// et al., "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017, without promises; release sequences and
// fences as in RC11, O. Lahav et al., PLDI 2017). Vector clocks detect unordered accesses to non-atomic memory.
//
// The model allows sequential consistency, x86's store buffers, and more. It leaves out two things: a load that reads a
// store caused by its own thread's later stores (load buffering), and stores that modification order puts before older
// stores of the same execution. No x86 processor shows either; an Arm processor does only for relaxed accesses.
class Memory {
 public:
  // Forgets everything. A thread may read an outdated store of a location `stale_reads` times in a row; then it reads a
  // newer one. C++ promises "a finite time", and a search needs a number.
  void reset(unsigned threads, unsigned stale_reads);
  unsigned add_location(std::uint64_t initial);  // called by thread 0
  void start_threads();                          // they start with thread 0's view
  void join_threads();                           // thread 0 acquires their views

  bool possible(const Operation& operation) const;
  // The number of stores that the operation may read; choice 0 is the newest.
  unsigned choices(const Operation& operation) const;
  // Returns the value read; for a store, the value written.
  std::uint64_t perform(const Operation& operation, unsigned choice);

  // Non-atomic memory. Each call returns an error text, or empty.
  std::string construct(unsigned thread, const void* address);
  std::string destroy(unsigned thread, const void* address);
  std::string read(unsigned thread, const void* address);
  std::string write(unsigned thread, const void* address);

 private:
  using View = std::array<std::uint16_t, kMaxLocations>;  // per location, the oldest store that may still be read
  using Clock = std::array<std::uint16_t, kMaxThreads>;   // per thread, the last step that happened before
  struct Knowledge {
    View view{};
    Clock clock{};
    void join(const Knowledge& other);
  };
  struct Store {
    std::uint64_t value = 0;
    Knowledge released;  // passed to whoever acquires it
  };
  struct Thread {
    Knowledge now;
    Knowledge at_release_fence;  // released by its relaxed stores
    Knowledge at_acquire_fence;  // read by its relaxed loads; a fence acquires it
    std::array<std::uint16_t, kMaxLocations> last_read{};
    std::array<std::uint16_t, kMaxLocations> stale_reads{};
  };
  struct Plain {
    const void* address = nullptr;
    bool alive = false;
    unsigned writer = 0;
    std::uint16_t write_step = 0;
    Clock read_steps{};
  };

  bool readable(const Operation& operation, std::size_t index) const;
  std::size_t oldest(const Operation& operation) const;
  void observe(const Operation& operation, std::size_t index, std::memory_order order);
  void append(const Operation& operation, std::uint64_t value, const Knowledge* continues);
  void fence(const Operation& operation);
  Plain& plain(const void* address);
  std::string check_write(unsigned thread, Plain& plain) const;

  unsigned threads_ = 0;
  unsigned stale_reads_ = 0;
  unsigned locations_ = 0;
  std::array<std::vector<Store>, kMaxLocations> history_;
  std::array<Thread, kMaxThreads> thread_;
  View sequential_{};  // made visible to later steps by sequentially consistent steps
  std::vector<Plain> plain_;
};

}  // namespace fairway::model

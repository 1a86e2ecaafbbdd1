#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fairway::model {

inline constexpr unsigned kMaxThreads = 5;  // thread 0 is the one that sets up and finishes
inline constexpr unsigned kMaxLocations = 24;

enum class Kind : std::uint8_t { load, store, exchange, add, compare_exchange, fence, await_nonzero };

// One step of a thread. await_nonzero is a kernel's wait: it is possible once the newest value is not zero, and takes
// it.
struct Operation {
  unsigned thread = 0;
  Kind kind = Kind::fence;
  unsigned location = 0;
  std::memory_order order = std::memory_order_relaxed;
  std::memory_order failure_order = std::memory_order_relaxed;
  std::uint64_t operand = 0;
  std::uint64_t expected = 0;
  bool always_succeeds = false;  // a mutant of compare_exchange: does not compare
  const char* file = "";         // where the program asked for it
  unsigned line = 0;

  bool writes() const { return kind != Kind::load && kind != Kind::fence; }
};

std::string to_string(const Operation& operation);
// True when the two, of different threads, give the same result in either order and neither changes what the other may
// do.
bool independent(const Operation& a, const Operation& b);

// The memory that C++20 promises, as a machine. Each atomic keeps the history of its stores in modification order, and
// a load may return any of them that is not older than what its thread knows: what it read, wrote, or acquired from
// others (J. Kang et al., "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017, without promises; release
// sequences and fences as in RC11, O. Lahav et al., PLDI 2017). Vector clocks find unordered accesses to what is not
// atomic.
//
// It contains sequential consistency and x86's store buffers, and goes beyond both. Left out: a load that reads a store
// which its own thread's later stores caused (load buffering), and stores that modification order puts before older
// ones of the same execution; no x86 shows either, and an Arm only for relaxed accesses.
class Memory {
 public:
  // Forgets everything. A thread may read one outdated store of a location `stale_reads` more times, then it sees a
  // newer one: C++ promises "a finite time" and a search needs a number.
  void reset(unsigned threads, unsigned stale_reads);
  unsigned add_location(std::uint64_t initial);  // by thread 0
  void start_threads();                          // they know what thread 0 knows
  void join_threads();                           // thread 0 knows what they know

  bool possible(const Operation& operation) const;
  // How many stores it may read; choice 0 is the newest.
  unsigned choices(const Operation& operation) const;
  // The value read (for a store the value written).
  std::uint64_t perform(const Operation& operation, unsigned choice);

  // Not atomic memory. Each says what is wrong, or nothing.
  std::string construct(unsigned thread, const void* address);
  std::string destroy(unsigned thread, const void* address);
  std::string read(unsigned thread, const void* address);
  std::string write(unsigned thread, const void* address);

 private:
  using View = std::array<std::uint16_t, kMaxLocations>;  // per location the oldest store that may still be read
  using Clock = std::array<std::uint16_t, kMaxThreads>;   // per thread the last step that happened before
  struct Knowledge {
    View view{};
    Clock clock{};
    void join(const Knowledge& other);
  };
  struct Store {
    std::uint64_t value = 0;
    Knowledge released;  // what who acquires it learns
  };
  struct Thread {
    Knowledge now;
    Knowledge at_release_fence;  // what its relaxed stores release
    Knowledge at_acquire_fence;  // what its relaxed loads read and a fence would acquire
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
  View sequential_{};  // what sequentially consistent steps have made visible to later ones
  std::vector<Plain> plain_;
};

}  // namespace fairway::model

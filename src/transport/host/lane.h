#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sys/local_socket.h"
#include "sys/memory_file.h"
#include "sys/process.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/host/files.h"
#include "transport/host/handshake.h"
#include "transport/host/segment.h"
#include "transport/optional_calls.h"
#include "transport/region_table.h"

namespace fairway::transport::host {

// One process's side of what two processes share for one epoch of a link. Outlives the lane while the peer may still
// access memory of this side. Owner: the transport's worker.
struct Pair {
  sys::MemoryFile made;    // the segment, on the side that made it
  sys::MappedFile joined;  // the segment, on the other side
  Segment* segment = nullptr;
  unsigned side = 0;  // ours
  sys::MappedFile table;
  RegionView regions;  // the peer's, in `table`
  sys::LocalSocket socket;
  sys::Process process;  // the peer's, if visible from here
  std::string no_cma;    // why cross-memory attach is not used; empty: it is
  bool gone = false;     // the peer's process has ended, or has closed everything of the epoch
  bool left = false;     // the peer's end of the socket is closed

  Direction& out() const { return segment->directions[side]; }
  Direction& in() const { return segment->directions[1 - side]; }
  Segment::End& own_end() const { return segment->ends[side]; }
  Segment::End& peer_end() const { return segment->ends[1 - side]; }

  // Wakes the peer if it sleeps; call it after writing for it with a sequentially consistent store. True: it took a
  // system call. A full socket means that a wake-up is already pending.
  bool ring() const {
    if (peer_end().asleep.load(std::memory_order_seq_cst) == 0 ||
        peer_end().asleep.exchange(0, std::memory_order_seq_cst) == 0)
      return false;
    static_cast<void>(socket.send(kRing, {}));
    return true;
  }
  // The words of the peer's views that may be set; whatever the peer wrote, no more than there are.
  std::span<const std::atomic<std::uint64_t>> views() const {
    return std::span(in().holds).first(std::min(in().holds_end.load(std::memory_order_seq_cst), kHolds));
  }
  // Whether the peer's kernels have a view of that region of this side, or of any.
  bool holds(std::uint64_t region) const {
    return !gone && std::ranges::any_of(views(), [region](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) == region;
    });
  }
  bool holds_any() const {
    return !gone && std::ranges::any_of(views(), [](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) != 0;
    });
  }
  // What the peer is doing with this side's memory at one moment: its current touch, then the copies that it had queued
  // by the end of that touch.
  class Mark {
   public:
    Mark() = default;
    explicit Mark(const Pair& pair) : touches_(pair.in().touching.load(std::memory_order_seq_cst)) {}
    // Whether all of it is over.
    bool over(const Pair& pair) {
      if (pair.gone) return true;
      if (!touched_ && touches_ % 2 != 0 && pair.in().touching.load(std::memory_order_seq_cst) == touches_)
        return false;
      if (!touched_) queued_ = pair.in().queued.load(std::memory_order_seq_cst);
      touched_ = true;
      return pair.in().over.load(std::memory_order_acquire) - queued_ < kHalf;
    }

    [[nodiscard]] bool in_touch() const { return !touched_; }  // at the last over(): still in the touch

   private:
    static constexpr std::uint64_t kHalf = std::uint64_t{1}
                                           << 63;  // wrong values from a hostile peer harm only its own session
    std::uint64_t touches_ = 0, queued_ = 0;
    bool touched_ = false;
  };
};

// The interval in which this side may access the peer's memory, marked by a word in shared memory. To close the epoch
// or revoke a region the owner first does that, then reads the word; this side first sets the word, then checks for the
// close. So at least one of the two sees the other (Dekker's algorithm, sequentially consistent). Keep it short: the
// owner may be waiting for its end.
class Touch {
 public:
  explicit Touch(const Pair& pair) : word_(pair.out().touching) {
    word_.store(value_ = word_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    allowed_ = pair.own_end().closed.load(std::memory_order_seq_cst) == 0 &&
               pair.peer_end().closed.load(std::memory_order_seq_cst) == 0;
  }
  ~Touch() { word_.store(value_ + 1, std::memory_order_release); }
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
  [[nodiscard]] bool allowed() const { return allowed_; }

 private:
  std::atomic<std::uint64_t>& word_;
  std::uint64_t value_;
  bool allowed_;
};

// One epoch of a link: this side's requests (flights), and the peer's requests, which come as records. This side copies
// writes and reads itself if the region is mapped or by cross-memory attach; such a slice is done once copied. A
// message is done once it is in the ring, since the peer reads the ring to its end even after a break. Owner: the
// transport's worker.
//   lane.cc         accepts and completes slices; ends the epoch
//   lane_move.cc    moves bytes by the CPU
//   lane_queue.cc   queues copies on a device; moves a few slices within the call, and sends a message so
//   lane_receive.cc executes incoming records
class Lane {
 public:
  static constexpr std::uint32_t kQueueDepth = 128;
  static constexpr std::uint64_t kSmall = 16 * 1024;  // slices up to this size pass larger ones

  // `mover`: for device memory, or null.
  Lane(std::shared_ptr<Pair> pair, LinkId link, PeerIndex peer, RegionTable& regions, Imports& imports,
       EventQueue& events, CostCounters& counters, Mover* mover);

  bool post(const Command& command);  // false: full
  AtOnce move_now(const SmallMove& move, RegionId region, Remote& remote);
  AtOnce send_now(std::span<const std::byte> head, std::span<const std::byte> tail);
  // Moves queued slices, small ones first: at most `small` and `large` bytes of each kind, and no more than the greater
  // of the two in total.
  void work(std::uint64_t small, std::uint64_t large) {
    if (!urgent_.empty() || !bulk_.empty() || !batches_.empty()) move_queued(small, large);
  }
  void receive(std::uint64_t budget);  // executes at most `budget` bytes of records
  // Whether work(), receive() and ring() would find nothing to do: most polls of a lane.
  [[nodiscard]] bool idle() const {
    return state_ == State::open && !broken_ && reader_.empty() && !reader_.malformed() && urgent_.empty() &&
           bulk_.empty() && batches_.empty() && !pushed_ && !owes_nudge_ && !nudged_ &&
           pair_->peer_end().closed.load(std::memory_order_seq_cst) == 0;
  }
  void ring();   // call once after any of these: wakes the peer if it sleeps
  void nudge();  // makes the peer read its local socket
  // Before the first receive(): whether the peer uses this lane.
  [[nodiscard]] bool joined() const { return !reader_.empty(); }
  [[nodiscard]] bool nudged();

  void begin_sleep() { pair_->own_end().asleep.store(1, std::memory_order_seq_cst); }
  void end_sleep() { pair_->own_end().asleep.store(0, std::memory_order_relaxed); }
  [[nodiscard]] bool busy() const;                                 // there is work that no wake-up announces
  [[nodiscard]] bool queued() const { return !batches_.empty(); }  // a device has copies queued
  [[nodiscard]] bool queued(std::uint64_t local_handle) const;

  // Reads some bytes of the peer's region, which wakes a link between devices. False: the region may not be read.
  bool read_to_wake(RegionId id, const Remote& remote, const Mover::Waking& waking);
  [[nodiscard]] bool reads_to_wake() const;  // such a read is not over

  void cancel(SliceToken token);
  void stop_memory(std::uint64_t local_handle);  // stops using that memory: its slices end
  void fail(Status why);                         // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }

  // Closes the epoch on this side. fenced() finishes it once the peer's last touch is over: it delivers what the ring
  // still holds, and slices without an event fail. For a peer that is disconnected close() finishes it once copied() is
  // true: a device has copies queued no more. Some may wait for a user's event. Before it take_rest() delivers what the
  // peer was told has arrived; while it is in_touch() more may come.
  void fence();
  [[nodiscard]] bool fenced();
  [[nodiscard]] bool copied();
  [[nodiscard]] bool in_touch();
  void take_rest();
  [[nodiscard]] const Pair::Mark& last_touch() const { return last_touch_; }  // the peer's; valid after fence()
  void close();
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }
  const std::shared_ptr<Pair>& pair() const { return pair_; }

 private:
  enum class Place : std::uint8_t { free, queued, asked };
  struct Flight {
    Place place = Place::free;
    bool ended = false;              // had its event
    bool touched = false;            // some byte was moved
    std::uint32_t asked = 0;         // requests in flight, to the peer or a device
    std::uint32_t queued = 0;        // of these, to a device
    ErrorCode code = ErrorCode::ok;  // the first error of a request
    Command command;
    BlockCursor cursor;
    std::uint64_t value = 0;       // an atomic's old value
    std::vector<std::byte> bytes;  // of a message that waits
  };
  struct Request {  // sent by a record; answers come in order
    std::uint32_t flight = 0;
    std::byte* local = nullptr;  // of a get
    std::uint32_t length = 0;
  };
  static constexpr std::uint32_t kNoFlight = ~std::uint32_t{0};
  struct Batch {                       // copies queued on a device together
    std::uint32_t flight = kNoFlight;  // none: a read to wake a link
    Mover::Ticket ticket;
    std::uint64_t bytes = 0;
    bool over = false;
    std::shared_ptr<PeerFile> file;  // keeps it mapped until the copies are over
    // Copies in two steps, through a pinned buffer that both the device and the kernel reach:
    Mover::Path path;
    std::byte* stage = nullptr;
    std::uint64_t there = 0;  // offset in the region
  };
  enum class Outcome : std::uint8_t { ended, asked, waits };  // of advance(); waits: stays at the head of its queue

  // lane.cc
  void end(Flight& flight, ErrorCode code);
  void release(Flight& flight);
  void report(const Flight& flight, ErrorCode code, Effect effect, const std::string& why = {});

  // lane_move.cc
  void move_queued(std::uint64_t small, std::uint64_t large);
  bool drain(std::deque<std::uint32_t>& queue, std::uint64_t& budget);
  Outcome advance(Flight& flight, std::uint64_t& budget);
  Outcome move(Flight& flight, std::uint64_t& budget);
  Outcome finish(Flight& flight);
  Outcome refuse(Flight& flight, ErrorCode code);
  ErrorCode next(Flight& flight, std::uint64_t most, Piece& piece, std::byte*& there);
  ErrorCode copy_mapped(Flight& flight, const Remote& remote, std::uint64_t& budget);
  Status reach_into(std::span<const sys::Process::Span> spans, bool read);
  ErrorCode move_by_cma(Flight& flight, Remote& remote, std::uint64_t& budget);
  ErrorCode ask_pieces(Flight& flight, std::uint64_t& budget);
  Outcome atomic(Flight& flight, const Remote& remote);
  bool send(const Record& record, std::span<const std::byte> payload = {});
  bool send_message(std::span<const std::byte> head, std::span<const std::byte> tail = {});

  // lane_queue.cc
  ErrorCode queue_copies(Flight& flight, const Remote& remote, bool urgent);
  static ErrorCode list_parts(Flight& flight, const Remote& remote, const Mover::Path& path, std::uint64_t region_size,
                              std::uint64_t part, std::span<Mover::Copy> list, std::size_t& count,
                              std::uint64_t& bytes);
  static ErrorCode list_pages(Flight& flight, const Remote& remote, const Mover::Path& path, std::uint64_t region_size,
                              std::span<Mover::Copy> list, std::size_t& count, std::uint64_t& bytes);
  ErrorCode stage_copies(Flight& flight, const Mover::Path& path, const Region& region, bool urgent);
  ErrorCode copy_by_cma(std::byte* there, std::byte* here, std::uint64_t length, bool read);
  Status start(Flight& flight, Batch batch, const Mover::Path& path, std::span<const Mover::Copy> copies,
               std::uint64_t bytes, bool urgent);
  Status start(Batch batch, const Mover::Path& path, std::span<const Mover::Copy> copies, bool urgent, void* after);
  ErrorCode second_step(const Flight& flight, const Batch& batch);
  void collect_copies();

  // lane_receive.cc
  void answered(Flight& flight);
  ErrorCode reach(const Record& record, std::uint64_t length, Access needed, RegionTable::Resolved& out) const;
  void apply(const Record& record, std::span<const std::byte> payload, bool closing);
  void serve(const Record& record, std::span<const std::byte> payload);
  void on_answer(const Record& record, std::span<const std::byte> payload);

  const std::shared_ptr<Pair> pair_;
  const LinkId link_;
  const PeerIndex peer_;
  RegionTable& regions_;
  Imports& imports_;
  EventQueue& events_;
  CostCounters& counters_;
  Mover* const mover_;
  RingWriter writer_;
  RingReader reader_;
  std::vector<Flight> flights_;  // grows with use, to kQueueDepth at most
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> urgent_, bulk_;  // small ones pass large ones
  std::uint32_t ordered_in_bulk_ = 0;
  std::deque<Request> requests_;
  std::deque<Batch> batches_;  // in the order of queueing
  std::uint64_t queued_bytes_ = 0;
  std::string why_;  // text of the last system_error
  std::uint64_t immediates_ = 0;
  Pair::Mark last_touch_;
  bool more_ = false;    // waits only for its next turn: nothing will wake this side for it
  bool pushed_ = false;  // the peer should be woken
  bool nudged_ = false;
  bool owes_nudge_ = false;
  bool broken_ = false;
  enum class State : std::uint8_t { open, fencing, closed } state_ = State::open;
};

}  // namespace fairway::transport::host

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/clock.h"
#include "collectives/host/schedule.h"
#include "collectives/host/wire.h"

namespace fairway::collectives {

// Notices that other threads run on this one's core though another core may be idle: the kernel leaves threads that
// give a core to each other where they are, for seconds. Who sleeps instead is woken on an idle core, if there is one.
class Crowd {
 public:
  // Gives the core away, to whom the kernel likes.
  void yield() {
    const Time before = Clock::now();
    std::this_thread::yield();
    const Time now = Clock::now();
    shared_ = now - before > kAlone ? shared_ + 1 : 0;
    if (shared_ < kInRow || now < next_) return;
    next_ = now + kPause;
    leaves_ = true;
  }
  // Whether to sleep now; once each time that it was noticed.
  [[nodiscard]] bool leaves() {
    const bool now = leaves_;
    leaves_ = false;
    return now;
  }

 private:
  static constexpr std::chrono::microseconds kAlone{1};  // a yield to which no other thread runs takes less
  static constexpr int kInRow = 8;
  static constexpr std::chrono::milliseconds kPause{1};  // where all cores are busy, sleeping gains nothing

  int shared_ = 0;  // yields in a row to which another thread ran
  Time next_{};     // not before
  bool leaves_ = false;
};

// Messages between this rank and one other, each of which has mapped the other's zone. The sender stores a message into
// a slot of the receiver's zone and publishes it by the slot's sequence word; the receiver reads it there, and counts
// the slots that it needs no more in its own zone, where the sender looks when it has none left. Neither engine takes
// part. A value; owner: Lanes.
class MappedPair {
 public:
  MappedPair() = default;
  // Blocks of this pair: in this rank's zone, and in the peer's. From message `sent` and `taken` on.
  MappedPair(std::byte* own, std::byte* theirs, std::uint64_t slot_stride, std::uint64_t sent, std::uint64_t taken)
      : own_(own), theirs_(theirs), stride_(slot_stride), sent_(sent), taken_(taken) {
    taken_word(own_).store(taken_, std::memory_order_release);
  }

  [[nodiscard]] bool is_mapped() const { return own_ != nullptr; }
  bool has_room() {
    if (sent_ - freed_ < kSlots) return true;
    freed_ = taken_word(theirs_).load(std::memory_order_acquire);
    return sent_ - freed_ < kSlots;
  }
  void send(std::uint64_t digest, std::uint64_t of, const void* payload, std::uint64_t bytes) {
    std::byte* const at = slot(theirs_, sent_);
    auto& front = *reinterpret_cast<Front*>(at);
    front.digest = digest;
    front.of = of;
    if (bytes != 0) std::memcpy(bytes <= kInFront ? front.bytes : at + kSlotHead, payload, bytes);
    front.sequence.store(++sent_, std::memory_order_release);
  }

  [[nodiscard]] bool has_message() const { return front().sequence.load(std::memory_order_acquire) == taken_ + 1; }
  // Of the message that has come.
  [[nodiscard]] const Front& front() const { return *reinterpret_cast<const Front*>(slot(own_, taken_)); }
  [[nodiscard]] const std::byte* payload(std::uint64_t bytes) const {
    return bytes <= kInFront ? front().bytes : slot(own_, taken_) + kSlotHead;
  }
  void done() { taken_word(own_).store(++taken_, std::memory_order_release); }

 private:
  static std::atomic<std::uint64_t>& taken_word(std::byte* block) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(block);
  }
  [[nodiscard]] std::byte* slot(std::byte* block, std::uint64_t message) const {
    return block + kPairHead + message % kSlots * stride_;
  }

  std::byte *own_ = nullptr, *theirs_ = nullptr;
  std::uint64_t stride_ = 0;
  std::uint64_t sent_ = 0, taken_ = 0;
  std::uint64_t freed_ = 0;  // of the peer's slots, as far as this rank has looked
};

// Another rank, or the own one, as an engine's peer.
struct Member {
  PeerId peer;  // none: the own rank
  std::string address = {};
  std::string name = {};  // in errors: "rank 3 (127.0.0.1:4000)"
};

// What a rank waits for before it can go on.
struct Blocked {
  // message, slot: of the peer, whose zone is mapped. counter: of the engine, by which the peer tells the same.
  enum class On : std::uint8_t { nothing, message, slot, counter, transfer } on = On::nothing;
  int peer = -1;
  std::uint32_t immediate = 0;  // counter: grows to `at_least`
  std::uint64_t at_least = 0;
  TransferId transfer = {};

  // Rather than for something of this rank's own.
  [[nodiscard]] bool waits_for_peer() const { return on != On::nothing && on != On::transfer; }
  [[nodiscard]] bool watches_memory() const { return on == On::message || on == On::slot; }
};

// Messages between the ranks of one communicator, in order for each pair, each in a slot of the receiver's memory. They
// go there in one of two ways, those between hosts by the engine:
//   mapped: the two ranks have mapped each other's zones, and store a message there themselves (MappedPair);
//   by the engine: a message is one write, and a counter of that slot tells it; the receiver gives slots back four at a
//     time, by another counter. A sent message is copied first, so nothing here refers to a caller's memory.
// A communicator begins by the engine. Owner: a communicator.
//   lanes.cc         beginning, end, waiting, what each rank tells of itself, and the mapped way
//   lanes_engine.cc  the way by the engine
class Lanes {
 public:
  static constexpr std::uint32_t kGivenBack = 4;  // slots at a time, by the engine
  static constexpr std::uint32_t kOutgoing = 8;   // messages that the engine may still hold
  static_assert(kSlots - kGivenBack + 1 >= kLeastRoom);
  static constexpr std::uint32_t immediates(int size) { return 10U * static_cast<std::uint32_t>(size); }

  Lanes(Engine& engine, std::vector<Member> members, int rank, std::uint32_t slot_bytes, std::uint32_t first_immediate);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // ---- beginning and end ----
  Status open(const std::string& name);  // allocates, and publishes the zone
  // Fills in what the peer tells of itself. While the peer has not come, `look` is asked now and then whether to go on.
  Status meet(int peer, const std::string& name, Time deadline, Words& words, const std::function<Status()>& look);
  // Maps the zones of those ranks. False: not all, and none stays mapped.
  bool map(const std::vector<int>& peers, Time deadline);
  // Whoever has mapped a zone is mapped by that rank, too: from here on messages between the two go that way. They have
  // sent and taken the same by then.
  void use_mapped();
  void unmap_all();
  [[nodiscard]] bool any_mapped() const { return mapped_ != 0; }
  [[nodiscard]] bool all_mapped() const { return mapped_ + 1 == size() && mapped_ != 0; }
  [[nodiscard]] bool is_mapped(int peer) const { return pairs_[static_cast<std::size_t>(peer)].is_mapped(); }
  // Nothing but the engine's work, for so long.
  void pause(Timeout time);
  void flush(Time deadline);  // waits until the engine holds no outgoing message
  void forget();              // the engine was closed, and freed the memory: nothing is sent or told any more
  // Like flush(), and frees the memory. not_fenced: it stays until the others have unmapped it, or the engine closes.
  Status close(Time deadline);

  // ---- messages ----
  // The call that this rank is in, before its messages.
  void enter(const Header& call);
  // Nothing: send() would go through now.
  [[nodiscard]] Blocked send_blocked(int peer) {
    if (!is_mapped(peer)) return send_blocked_by_engine(peer);
    if (pair(peer).has_room()) return {};
    return slots_owed() ? oldest_outgoing() : Blocked{Blocked::On::slot, peer};
  }
  Status send(int peer, const Header& header, const void* payload) {
    if (!is_mapped(peer)) return send_by_engine(peer, header, payload);
    pair(peer).send(call_digest_, header.of, payload, header.bytes);
    touched(peer);
    return {};
  }
  // A piece that continues what came before to this peer, without a header, by the engine. Straight from registered
  // memory, which stays as it is until nothing is outgoing_left().
  Status send_rest_from(int peer, const Slice& payload);
  [[nodiscard]] Blocked receive_blocked(int peer) {
    if (!is_mapped(peer)) return receive_blocked_by_engine(peer);
    if (pair(peer).has_message()) return {};
    return slots_owed() ? oldest_outgoing() : Blocked{Blocked::On::message, peer};
  }
  // Of the message that receive_blocked() found; until done_with(). Whether it is surely of the call that this rank is
  // in, and a piece of so many bytes; else look at header_of().
  [[nodiscard]] bool is_of_this_call(int peer, std::uint64_t of, bool continues) {
    if (!is_mapped(peer)) return continues;  // the header of what it continues was looked at
    return pair(peer).front().digest == call_digest_ && pair(peer).front().of == of;
  }
  // Bytes that no sender should have written are an error.
  Result<Header> header_of(int peer);
  [[nodiscard]] const std::byte* payload_of(int peer, std::uint64_t bytes) {
    return is_mapped(peer) ? pair(peer).payload(bytes) : payload_by_engine(peer);
  }
  void done_with(int peer) {
    if (!is_mapped(peer)) return done_by_engine(peer);
    pair(peer).done();
    touched(peer);
  }
  // Wakes the ranks that sleep on what this one has sent or taken. Call it before this rank waits, or ends a call.
  void wake_sleepers() {
    if (!touched_.empty()) wake_touched();
  }

  // ---- waiting ----
  // How long wait() polls before it sleeps. Where ranks share cores, it gives its core to another between two polls.
  void set_spin(Timeout spin, bool shares_cores) {
    spin_ = spin;
    shares_cores_ = shares_cores;
  }
  // Whether it comes within a microsecond or two, in which no clock is read; false where ranks share cores.
  bool comes_at_once(const Blocked& blocked);
  // Waits, at most that long. An error: a message could not be sent, or the engine is closed; `peer` is whom it
  // concerns.
  Status wait(const Blocked& blocked, Timeout most, int& peer);
  // Collects what the engine has finished; an error as in wait().
  Status collect(int& peer);
  // Nothing: all that was sent has arrived. After collect().
  [[nodiscard]] Blocked outgoing_left() const;

  // ---- what each rank tells of itself ----
  [[nodiscard]] Words& words() { return *words_; }
  // Starts reading another rank's words; read() says whether they have come, or come within `most`. Where the engine
  // has no room for as many questions as there are ranks, ask_rest() asks the rest, as answers come; it takes so long
  // at most.
  void ask(int peer);
  void ask_rest(Timeout most);
  [[nodiscard]] bool read(int peer, Words& out, Status& status, Timeout most = Timeout{0});

  [[nodiscard]] Slice nothing() const { return {stage_.id, 0, 0}; }
  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::uint32_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Lane {
    RemoteRegion zone;                  // the peer's
    Mapping mapping;                    // of it
    std::uint32_t first_immediate = 0;  // the peer's
    std::uint64_t sent = 0, taken = 0;  // messages to and from the peer, by the engine
    std::uint64_t given = 0;            // slots given back to the peer, by the engine
    bool touched = false;               // in touched_
    bool owes_bell = false;             // it sleeps, and the engine had no room for the bell
    TransferId asked = {};
    Status answer = {};
    bool answered = false;
    bool waits_to_ask = false;
  };
  struct Outgoing {
    TransferId transfer = {};
    int peer = -1;
    std::uint64_t order = 0;  // of its beginning
    bool only_tells = false;  // carries no bytes: a peer that is gone needs it no more
  };

  [[nodiscard]] Lane& lane(int peer) { return lanes_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const std::string& name_of(int peer) const { return members_[static_cast<std::size_t>(peer)].name; }
  // The place of `other` among all but `self`.
  static std::uint32_t place(int other, int self) {
    return static_cast<std::uint32_t>(other < self ? other : other - 1);
  }
  [[nodiscard]] std::uint64_t stride() const { return (kSlotHead + slot_bytes_ + 63) / 64 * 64; }
  [[nodiscard]] std::uint64_t block_at(std::uint32_t place) const {
    return kZoneHead + place * (kPairHead + kSlots * stride());
  }
  [[nodiscard]] std::uint64_t zone_bytes() const { return block_at(static_cast<std::uint32_t>(size() - 1)); }

  // lanes.cc
  [[nodiscard]] bool ready(const Blocked& blocked);
  bool came_while_spinning(const Blocked& blocked, Timeout most);

  // lanes_engine.cc
  [[nodiscard]] std::uint64_t header_at(std::uint32_t place, std::uint64_t message) const {
    return block_at(place) + kPairHead + message % kSlots * stride() + sizeof(Front);
  }
  [[nodiscard]] std::uint32_t own_counter(int peer, std::uint64_t message) const;
  // What the peer counts up: slots that it gives back, or, mapped, that this rank shall wake.
  [[nodiscard]] std::uint32_t own_bell(int peer) const;
  [[nodiscard]] std::uint64_t counted(std::uint32_t immediate) const;  // since open()
  [[nodiscard]] std::uint64_t baseline(std::uint32_t immediate) const {
    return baseline_[immediate - first_immediate_];
  }
  Blocked send_blocked_by_engine(int peer);
  Blocked receive_blocked_by_engine(int peer);
  Status send_by_engine(int peer, const Header& header, const void* payload);
  [[nodiscard]] const std::byte* payload_by_engine(int peer);
  void done_by_engine(int peer);
  Outgoing* free_outgoing();
  Blocked outgoing_blocked();
  [[nodiscard]] Blocked oldest_outgoing() const;
  Status finished(Outgoing& outgoing, const Completion& completion, int& peer);
  Status write(int peer, const Extent* extent, std::uint32_t immediate, Outgoing& one);
  Status write_message(int peer, const Extent& extent, Outgoing& one);
  RemoteAddress next_place(int peer);
  Status ring(int peer);  // counts the bell that this rank has at the peer; queue_full: try again
  void give_back(int peer);
  bool slots_owed();

  // the mapped way
  [[nodiscard]] MappedPair& pair(int peer) { return pairs_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] ZoneHead& their_head(int peer) { return *reinterpret_cast<ZoneHead*>(lane(peer).mapping.address); }
  void touched(int peer) {
    if (lane(peer).touched) return;
    lane(peer).touched = true;
    touched_.push_back(peer);
  }
  void wake_touched();
  bool can_ring();
  Status sleep(const Blocked& blocked, Timeout most);

  Engine& engine_;
  const std::vector<Member> members_;
  const int rank_;
  const std::uint32_t slot_bytes_, first_immediate_;
  Region zone_, stage_;  // what others write to; what this rank's transfers use
  Words* words_ = nullptr;
  Words forgotten_;          // in their place after forget()
  std::vector<Lane> lanes_;  // by rank
  std::vector<std::uint64_t> baseline_;
  std::array<Outgoing, kOutgoing> outgoing_;
  std::uint32_t in_flight_ = 0;  // of outgoing_
  std::uint64_t posted_ = 0;     // in outgoing_, ever

  int mapped_ = 0;                 // peers
  std::vector<MappedPair> pairs_;  // by rank; of one that is not mapped: empty
  std::vector<int> touched_;       // ranks that may sleep on what this one has stored
  std::uint64_t call_digest_ = 0;

  Timeout spin_{0};
  bool shares_cores_ = false;
  bool all_asked_ = true;
  int owes_ = -1;  // a peer that slots are given back to, before this rank waits or takes the next message
  Crowd crowd_;
  int worth_ = 0;  // spins that succeeded of late, less those that did not
  unsigned skipped_ = 0;
};

}  // namespace fairway::collectives

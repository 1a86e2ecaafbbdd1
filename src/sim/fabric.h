#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fairway/loopback.h"

#include "sim/host.h"
#include "sim/simulation.h"
#include "transport/loopback/loopback.h"
#include "transport/region_table.h"

namespace fairway::sim {

// Posted writes: bytes that a NIC has acknowledged but that memory does not show yet, as behind a PCIe bridge. For
// devices whose completion means delivered and not visible. They become visible in order, all at once.
class PostedWrites {
 public:
  void post(const transport::RegionTable& regions, RegionId region, std::uint64_t offset,
            std::span<const std::byte> bytes);
  // Makes all of them visible; drops those to regions that were deregistered.
  void flush();
  void forget() { writes_.clear(); }
  bool empty() const { return writes_.empty(); }

 private:
  struct Write {
    const transport::RegionTable* regions = nullptr;
    RegionId region;
    std::uint64_t offset = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Write> writes_;
};

class Fabric;
class FabricPort;
struct SimLink;

// A slice, from post() until the last frame that refers to it is gone, which may be long after its event. Pooled by the
// fabric.
struct Flight {
  SimLink* link = nullptr;
  unsigned side = 0;  // side of the initiator
  transport::loopback::Command command;
  std::uint64_t total = 0;
  std::vector<std::byte> payload;
  struct Part {
    std::uint64_t block;   // offset of the block at the target
    std::uint64_t offset;  // offset within the block
    std::uint64_t length;
    std::uint64_t at;  // offset in the payload
  };
  std::vector<Part> parts;                             // the ranges that gather() found, of all pieces
  std::uint64_t pieces = 0, departed = 0, landed = 0;  // bit sets, by piece
  std::uint32_t frames = 0;                            // events that refer to this flight
  bool left = false;                                   // a frame has left the NIC
  bool settled = false;                                // the target is finished with it: all landed, or refused
  bool ended = false;                                  // its event is decided: local memory is no longer accessed
  bool waits_turn = false;
  ErrorCode result = ErrorCode::ok;
  std::uint64_t old_value = 0;
  Time arrives = 0;         // at a steady NIC: its last byte
  std::size_t carried = 0;  // its place in what Fabric::watch() fills, from 1 on
  std::uint64_t turn = 0;   // position among messages and immediates, in posting order
};

// An event that a port's poll() will return.
struct Outcome {
  transport::EventKind kind = transport::EventKind::done;
  transport::SliceToken token = 0;
  ErrorCode code = ErrorCode::ok;
  Effect effect = Effect::not_applied;
  std::uint64_t value = 0;
  std::uint64_t local_handle = 0;
};

struct Inbound {
  transport::EventKind kind = transport::EventKind::message;
  std::uint32_t immediate = 0;
  std::vector<std::byte> bytes;
};

// First in, first out; takes no memory before its first entry, as a simulated rank has a thousand links.
template <class T>
class Queue {
 public:
  [[nodiscard]] bool empty() const { return next_ == entries_.size(); }
  [[nodiscard]] std::size_t size() const { return entries_.size() - next_; }
  T& front() { return entries_[next_]; }
  void push_back(T entry) { entries_.push_back(std::move(entry)); }
  T& emplace_back() { return entries_.emplace_back(); }
  void pop_front() {
    if (++next_ != entries_.size()) return;
    entries_.clear();
    next_ = 0;
  }
  [[nodiscard]] auto begin() const { return entries_.begin() + static_cast<std::ptrdiff_t>(next_); }
  [[nodiscard]] auto end() const { return entries_.end(); }

 private:
  std::vector<T> entries_;
  std::size_t next_ = 0;
};

struct LinkEnd {
  Host* host = nullptr;
  std::size_t nic = 0;
  transport::DeviceIndex device = 0;
  transport::RegionTable* regions = nullptr;
  std::shared_ptr<transport::loopback::Doorbell> doorbell;
  bool open = false;  // its port exists
  bool fencing = false;
  bool fenced = false;
  std::vector<Flight*> flights;  // posted here and not ended
  std::uint32_t in_flight = 0;   // posted here, event not returned yet
  Queue<Outcome> outcomes;
  Queue<Inbound> inbound;
  // Where the transport looks for ends that have something to poll; null: it looks at all.
  std::vector<std::uint32_t>* ready = nullptr;
  std::uint32_t slot = 0;
  bool told = false;  // it is in there
  void ring();
  std::uint64_t immediates = 0;    // number returned to the engine
  std::uint64_t next_turn = 0;     // turn of the next one posted here
  std::uint64_t current_turn = 0;  // turn that the other end delivers next
  std::vector<Flight*> arrived;    // posted here, waiting for their turn
  bool retrying = false;           // the other end was not ready for one of them
};

// One epoch of one link.
struct SimLink {
  Fabric* fabric = nullptr;
  std::uint64_t name = 0;
  bool broken = false;
  LinkEnd ends[2];
};

// The behavior of a simulated NIC beyond its capabilities.
struct NicBehavior {
  Time latency_min = 1 * kMicrosecond;
  Time latency_max = 10 * kMicrosecond;
  Time retransmit = 500 * kMicrosecond;
  Time late = 20 * kMillisecond;             // how long frames of a broken link may still travel
  std::uint32_t partial_post_per_mille = 0;  // probability that post() takes fewer slices than it could
  // Probability that a frame or an acknowledgement is lost and retransmitted after `retransmit`.
  std::uint32_t lose_per_mille = 0;
  std::uint32_t give_up_per_mille = 0;  // probability that a loss breaks the link
  bool faulty = false;                  // corrupts a byte of everything it writes or reads: no link proof may pass
  // Probability that move_now() takes a slice, as between processes that share memory; 0: never.
  std::uint32_t at_once_per_mille = 0;
  bool error_breaks_link = false;  // when the target refuses access, like a queue pair that goes to the error state
  bool shares_fence = false;       // a fence of one link ends the device's other links
  // Nothing is left to chance, for measuring in virtual time: a slice leaves in one piece, takes its NIC
  // message_time and its bytes' time, arrives latency_min after it left, and takes the same time of the NIC there. Each
  // NIC sends, and receives, one after the other. The engines' own records take the time of their bytes alone.
  bool steady = false;
  Time message_time = 0;
};

struct NicDevice {
  transport::Device device;
  NicBehavior nature;
};

// What a host's NICs have sent.
struct Traffic {
  std::uint64_t messages = 0, bytes = 0;  // slices that carry a caller's bytes
  std::uint64_t counts = 0;               // slices without any, which only count
  std::uint64_t records = 0;              // the engine's own messages
};

// A slice with a caller's bytes, between steady NICs.
struct Carried {
  const Host* from = nullptr;
  const Host* to = nullptr;
  std::uint64_t bytes = 0;
  Time leaves = 0;   // when its NIC takes it up
  Time arrives = 0;  // its last byte, at the other NIC; 0: not yet known
};

// All NICs and the network between them. Bytes are read from the source some time after post(), travel in pieces that
// are delayed, repeated and reordered, land in pieces, and are acknowledged later still. Within an epoch the NICs make
// this reliable. Frames of a broken link may land until its target is fenced. Owned by the owner of the simulation.
class Fabric {
 public:
  explicit Fabric(Simulation& simulation) : simulation_(simulation) {}
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  // Connects a host's NICs; the result goes into EngineOptions::loopback or the host's transports.
  // `name`: of the transport.
  std::shared_ptr<Loopback> plug_in(Host& host, std::vector<NicDevice> devices, std::string name = "loopback");
  Traffic sent_by(const Host& host) const;
  // From now on each such slice is added to `carried`, which the caller owns; null: no longer.
  void watch(std::vector<Carried>* carried) { carried_ = carried; }

  // Faults. A device that is down makes no new link for `down_for`.
  void break_device(Host& host, std::size_t device, Time down_for);
  void break_link(std::uint64_t name);  // by the name that both ends were given
  void break_between(const Host& a, const Host& b);
  void host_killed(const Host& host);  // its queue pairs are gone; peers may or may not learn of it
  // Until `until` the host's NICs stall, as behind a pause frame: they read, land, fence and complete nothing.
  void hold(const Host& host, Time until);
  // Corrupts the byte transferred to or from this address of an initiator's memory, each time, until heal(), which
  // returns how often it did.
  void garble(const std::byte* at) { garbled_.push_back({at, 0}); }
  std::uint32_t heal(const std::byte* at);

  std::size_t open_ends() const;  // existing ports: none once every transport is closed
  std::uint64_t late_frames_stopped() const { return late_stopped_; }
  std::uint64_t late_frames_landed() const { return late_landed_; }
  std::uint64_t moved_at_once() const { return moved_at_once_; }
  std::uint64_t sent_at_once() const { return sent_at_once_; }

 private:
  friend class FabricWire;
  friend class FabricPort;

  struct Nic {
    Host* host = nullptr;
    std::vector<transport::Device> devices;
    std::vector<NicBehavior> natures;
    std::vector<Time> down_until;
    std::vector<Time> busy_until, receives_until;
    Traffic sent;
    Time held_until = 0;
    PostedWrites posted;  // into this host's memory
  };
  struct Garbled {
    const std::byte* at;
    std::uint32_t times;
  };
  static constexpr std::uint64_t kPieceShift =
      56;  // packs the argument a of an event: piece << 56 | first byte; b is the byte after the last

  // fabric.cc: links
  std::unique_ptr<transport::loopback::Port> open_end(SimLink& link, unsigned side, Nic& nic,
                                                      transport::loopback::End end);
  void break_link(SimLink& link);
  void end_flight(Flight& flight, ErrorCode code);
  Time held_until(const SimLink& link, unsigned side) const;  // 0: not held
  bool holds(Flight& flight, unsigned side, Simulation::Handler again, std::uint64_t a, std::uint64_t b);
  void fence_now(SimLink& link, unsigned side);
  static void tell_down(void* link, std::uint64_t side, std::uint64_t);
  static void fence_done(void* link, std::uint64_t side, std::uint64_t);
  static void abort_flight(void* flight, std::uint64_t, std::uint64_t);
  static void ring(void* link, std::uint64_t side, std::uint64_t);

  // flight.cc: frames; fabric.cc: what follows the last one
  void launch(SimLink& link, unsigned side, const transport::loopback::Command& command);
  void launch_piece(Flight& flight, std::uint64_t piece, std::uint64_t begin, std::uint64_t end, Time when);
  static void depart(void* flight, std::uint64_t a, std::uint64_t end);
  static void land(void* flight, std::uint64_t a, std::uint64_t end);
  static void serve_read(void* flight, std::uint64_t a, std::uint64_t end);
  static void land_read(void* flight, std::uint64_t a, std::uint64_t end);
  static void acknowledge(void* flight, std::uint64_t, std::uint64_t);
  static void deliver(void* link, std::uint64_t side, std::uint64_t);
  static void deliver_again(void* link, std::uint64_t side, std::uint64_t);
  bool may_pass(Flight& flight, unsigned toward, Simulation::Handler again, std::uint64_t a, std::uint64_t b);
  void refuse(Flight& flight, ErrorCode code);
  void arrived(Flight& flight);
  void skip_turn(Flight& flight);
  void answer(Flight& flight);
  void drop(Flight& flight);
  void garble(const Flight& flight, const std::byte* place, std::span<std::byte> bytes);
  ErrorCode gather(Flight& flight, std::uint64_t begin, std::uint64_t end, bool copy_out);
  ErrorCode apply(Flight& flight, std::uint64_t begin, std::uint64_t end, bool is_read);
  ErrorCode execute_atomic(Flight& flight);
  // A frame that leaves at that time and carries so many bytes to one end.
  void send(Flight& flight, unsigned toward, Time leaves, std::uint64_t bytes, Simulation::Handler handler,
            std::uint64_t a, std::uint64_t b);
  Time time_of(const Flight& flight) const;  // of a steady NIC
  std::uint64_t rate_of(const LinkEnd& end) const;
  Time leaves_target(const Flight& flight, std::uint64_t bytes);
  static void begin_to_arrive(void* flight, std::uint64_t a, std::uint64_t end);
  void send_steadily(Flight& flight, std::uint64_t a, std::uint64_t end);
  Time latency(const Flight& flight);
  bool only_delivers(const Flight& flight) const;
  static void show_posted(void* nic, std::uint64_t, std::uint64_t);
  const NicBehavior& nature(const SimLink& link, unsigned side) const;

  Simulation& simulation_;
  std::vector<std::unique_ptr<Nic>> nics_;
  std::vector<std::unique_ptr<SimLink>> links_;  // of all epochs: late frames refer to them
  std::unordered_map<std::uint64_t, SimLink*> offers_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Flight*> free_flights_;
  std::vector<Garbled> garbled_;
  std::vector<Carried>* carried_ = nullptr;
  std::uint64_t late_stopped_ = 0;
  std::uint64_t late_landed_ = 0;
  std::uint64_t moved_at_once_ = 0, sent_at_once_ = 0;
};

// One end of a simulated link, as a transport sees it. Owned by the transport. The fabric keeps the state that late
// frames need after it.
class FabricPort final : public transport::loopback::Port {
 public:
  FabricPort(Fabric& fabric, SimLink& link, unsigned side)
      : fabric_(fabric), link_(link), end_(link.ends[side]), side_(side) {}
  ~FabricPort() override;

  std::size_t post(std::span<const transport::loopback::Command> commands) override;
  transport::AtOnce move_now(const transport::SmallMove& move, RegionId region) override;
  transport::AtOnce send_now(std::span<const std::byte> head, std::span<const std::byte> tail) override;
  std::size_t poll(std::span<transport::Event> events, Time now, std::uint64_t& budget) override;
  bool idle() const override { return end_.outcomes.empty() && end_.inbound.empty(); }
  bool in_use() const override { return !end_.inbound.empty(); }
  void cancel(transport::SliceToken token) override;
  void cancel_memory(std::uint64_t local_handle) override;
  bool uses(std::uint64_t local_handle) const override;
  void fence() override;
  void cut() override { fabric_.break_link(link_); }
  void close() override;
  std::uint64_t name() const override { return link_.name; }

 private:
  transport::AtOnce try_at_once();

  Fabric& fabric_;
  SimLink& link_;
  LinkEnd& end_;
  const unsigned side_;
  std::vector<std::vector<std::byte>> lent_;  // messages returned by the last poll, valid until the next
};

// A host's attachment to the fabric.
class FabricWire final : public transport::loopback::Wire {
 public:
  FabricWire(Fabric& fabric, std::size_t nic, std::string name) : fabric_(fabric), nic_(nic), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::uint64_t fabric() const override { return 0x51; }
  std::span<const transport::Device> devices() const override;
  bool ready(transport::DeviceIndex device) const override;
  bool shares_fence(transport::DeviceIndex device) const override;
  bool tells_ready() const override;
  void flush() override;
  std::unique_ptr<transport::loopback::Port> offer(std::uint64_t id, transport::loopback::End end) override;
  std::unique_ptr<transport::loopback::Port> attach(std::uint64_t id, transport::loopback::End end) override;

 private:
  Fabric& fabric_;
  const std::size_t nic_;
  const std::string name_;
};

}  // namespace fairway::sim

#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fairway/loopback.h"

#include "sim/host.h"
#include "sim/link.h"
#include "sim/posted.h"
#include "transport/loopback/loopback.h"

namespace fairway::sim {

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

  // flight.cc and arrivals.cc: frames
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

}  // namespace fairway::sim

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fairway/engine.h"

#include "control/control.h"
#include "engine/control_message.h"
#include "scripted_transport.h"
#include "sim/host.h"
#include "sim/simulation.h"

namespace fairway::hostile {

// A real engine in the simulator and a peer that knows the job's key, speaks control as it should, and lies in
// everything that it says with it and over its link. Each transfer of the victim counts its completions.
class Victim final : public control::Observer {
 public:
  static constexpr std::size_t kRegion = 4096;
  static constexpr std::byte kPaint{0x5a};
  static constexpr std::byte kSecret{0xc3};  // at the end of the region closed to peers

  struct Options {
    bool hold = false;        // the victim's own slices stay in flight until they are stopped
    bool with_writes = true;  // the victim's device has writes and reads
    bool greet = true;        // with an honest hello
    bool transfers = true;    // one of each kind is started
  };
  Victim() : Victim(Options{}) {}
  explicit Victim(const Options& options);
  ~Victim() override;

  // What the peer does. Each runs the simulation until the victim has looked at it.
  void record(std::span<const std::byte> bytes);  // header and body
  void message(std::span<const std::byte> bytes);
  void event(transport::EventKind kind, std::uint64_t value);
  void settle(Time time = 200 * kMicrosecond);

  // Empty, or what of the victim is not as it must be: a byte outside the writable region changed, the secret was sent,
  // a transfer completed twice, it is down for another reason than the peer's bad words.
  std::string broken() const;
  // Closes the victim: then every transfer has completed exactly once, or this says which has not.
  std::string close();
  bool up() const { return up_; }               // as the peer sees it
  const Status& down() const { return down_; }  // why the victim ended the session; ok: it did not

  Engine& engine() { return *engine_; }
  Script& script() { return *script_; }
  PeerId peer() const { return peer_; }
  engine::Hello honest_hello() const;
  // Regions of the victim, as any peer may know them.
  const Region& writable() const { return regions_[0]; }
  const Region& readable() const { return regions_[1]; }
  const Region& closed_to_peers() const { return regions_[2]; }
  std::byte* memory() { return reinterpret_cast<std::byte*>(words_.data()); }
  std::size_t started() const { return jobs_.size(); }
  TransferId transfer(std::size_t index) const { return jobs_[index]->id; }
  std::uint32_t next_record = 0;  // the number that the peer's next record should have

  void session_up(control::SessionId session, const control::PeerInfo&) override {
    session_ = session;
    up_ = true;
  }
  void session_down(control::SessionId, const Status&) override { up_ = false; }
  void message(control::SessionId, std::span<const std::byte>) override {}
  void connect_done(std::uint64_t, Result<control::SessionId>) override {}
  void resolve_done(std::uint64_t, Result<std::string>) override {}
  control::Progress progress() override { return {}; }

 private:
  struct Job {
    TransferId id;
    int completions = 0;
  };
  void start(const Request& request);
  void start_transfers();

  sim::Simulation simulation_;
  sim::Host* own_ = nullptr;
  sim::Host* theirs_ = nullptr;
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::vector<std::uint64_t> words_;  // paint, then each region with paint around it
  std::array<Region, 3> regions_;
  std::optional<Engine> engine_;
  std::unique_ptr<control::Control> control_;
  control::SessionId session_ = 0;
  bool up_ = false;
  PeerId peer_;
  RemoteRegion remote_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Status down_;
};

}  // namespace fairway::hostile

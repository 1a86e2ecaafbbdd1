#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/open.h"
#include "engine/waiting.h"
#include "engine/worker.h"

namespace fairway::engine {

// An engine's workers and the tasks that run them. A peer belongs to the worker of its slot. open() makes the workers;
// after that any thread may call everything but the calls that end them.
class Workers final : public CallerStepped {
 public:
  explicit Workers(EngineTables& tables) : tables_(tables) {}  // which outlive it

  // Each with its own transports by `factory`. Of those that it made before an error close() lets go.
  Status open(const TransportFactory& factory, Waiting& waiting, SessionControl& sessions, MachineDiscovery& machine);

  [[nodiscard]] std::size_t count() const { return workers_.size(); }
  [[nodiscard]] Worker& operator[](std::size_t index) const { return *workers_[index]; }
  [[nodiscard]] std::span<const std::unique_ptr<Worker>> all() const { return workers_; }
  [[nodiscard]] Worker& owner_of(std::uint32_t peer_slot) const {
    return *workers_[workers_.size() == 1 ? 0 : peer_slot % workers_.size()];  // a division is dear to a small write
  }
  // Of one worker: all have transports of the same kinds.
  [[nodiscard]] std::span<const std::unique_ptr<transport::Transport>> transports() const {
    return workers_.front()->transports();
  }

  // Runs `command` on the worker that owns the peer and waits for it; peer_dead or stale_incarnation if there is none.
  Status with_peer(PeerId id, const std::function<void(Worker&, Peer&)>& command) const;
  // Runs `command` on each, one after the other, and waits for it.
  void call_all(const std::function<void(Worker&)>& command) const;
  void post_all(const std::function<void(Worker&)>& command) const;
  void wake() const;
  [[nodiscard]] control::Progress progress() const;

  // ---- as one, by the caller whose turn it is ----
  Time step(Time now) override;
  Time step_for(std::span<Completion> room, std::size_t& filled, Time now) override;
  bool prepare_sleep() override;
  void slept(Time now) override;

  // ---- the end, in this order; by the thread that closes the engine ----
  void close();                            // every peer down, every transport closed
  [[nodiscard]] Status untouched() const;  // afterwards, any thread: not_fenced, and by what
  void end_tasks();                        // no thread steps them any more
  [[nodiscard]] bool stepped_here() const override;
  [[nodiscard]] bool any_left() const override {
    return !tables_.completions.empty() || !tables_.notifications.empty() || !tables_.peer_events.empty();
  }
  void destroy() { workers_.clear(); }

 private:
  EngineTables& tables_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace fairway::engine

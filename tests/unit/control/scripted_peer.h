#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/connection.h"
#include "control/frame.h"
#include "fake_world.h"

namespace fairway::control {

// Somebody who knows the job's key and says whatever the test wants: it dials an engine of the same FakeWorld.
class ScriptedPeer final : private Stepper {
 public:
  ScriptedPeer(FakeWorld& world, const std::string& key)
      : world_(world), node_(world.add_node()), runtime_(node_.runtime()), wire_(key, runtime_.rng) {
    task_ = std::move(runtime_.executor.start({}, *this)).value();
  }

  // Until the proofs are done.
  bool dial(const std::string& address) {
    connection_ =
        std::make_unique<Connection>(wire_, std::move(runtime_.network.dial(address, *task_)).value(), Role::dialer);
    for (int i = 0; i < 20 && !connection_->is_open(); ++i) turn();
    return connection_->is_open();
  }
  // Handshake, identity and acceptance: a session of `intent`.
  bool join(const std::string& address, Intent intent = Intent::connect) {
    if (!dial(address)) return false;
    connection_->put(identity(intent));
    for (int i = 0; i < 20; ++i)
      if (auto type = read(); type == FrameType::accept) return true;
    return false;
  }
  Identity identity(Intent intent) const {
    Identity out;
    out.incarnation = incarnation;
    out.session = intent == Intent::connect || intent == Intent::resume ? 77 : 0;
    out.stamp = stamp;
    out.timeout_ms = 2000;
    out.intent = intent;
    out.name = "scripted";
    out.address = "127.0.0.1:7";
    return out;
  }
  // The type of the next frame within a little while.
  std::optional<FrameType> read() {
    for (int i = 0; i < 5; ++i) {
      if (const auto frame = connection_->next()) {
        body.assign(frame->body.begin(), frame->body.end());
        return frame->type;
      }
      turn();
    }
    return std::nullopt;
  }
  void turn() {
    connection_->pump();
    world_.run(200 * kMicrosecond);
    connection_->pump();
  }
  Connection& connection() { return *connection_; }
  Wire& wire() { return wire_; }

  std::uint64_t incarnation = 4242;
  std::uint64_t stamp = 1;
  std::vector<std::byte> body;  // of the frame that was read last

 private:
  Time step(Time) override { return kNever; }

  FakeWorld& world_;
  FakeWorld::Node& node_;
  Runtime runtime_;
  Wire wire_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace fairway::control

#pragma once

#include <string>

#include "control/bodies.h"
#include "control/closing_connections.h"
#include "control/connection.h"
#include "control/control.h"
#include "control/mailbox.h"
#include "core/runtime.h"

namespace fairway::control {

// What the parts of one control instance share: this engine's identity and its runtime. Owned and changed by the
// control thread only; other threads use the mailbox.
struct ControlContext {
  ControlContext(const Options& options_in, const Runtime& runtime_in, Observer& observer_in);

  Options options;
  Runtime runtime;
  Observer& observer;
  Mailbox mailbox;
  Wire wire;
  ClosingConnections closing;
  Task* task = nullptr;  // the control thread's task; set before anything else runs

  std::string name;
  std::string address;
  std::uint64_t incarnation;
  std::uint64_t started_unix_ns;

  // This engine's identity frame; each call has a later stamp.
  Identity identity(Intent intent, std::uint64_t session = 0, std::uint64_t received = 0);
  std::uint64_t next_stamp() { return ++stamp_; }
  bool is_self(const Identity& peer) const { return peer.incarnation == incarnation && peer.name == name; }
  std::uint64_t random_id();  // never 0
  Time jittered(Time delay);  // a random time between 0.5 and 1.5 times `delay`

 private:
  std::uint64_t stamp_ = 0;
};

// "10.0.0.7:4000" for an engine that advertises 0.0.0.0:4000 and connects from 10.0.0.7:51234; otherwise `advertised`.
std::string reachable_address(const std::string& advertised, const std::string& seen_from);

// Decides by the text alone, without a resolver: a loopback address means a different host to everyone who reads it.
bool looks_loopback(const std::string& address);

// Whether `peer` is the same incarnation as the peer of a known session.
bool same_incarnation(const PeerInfo& known, const Identity& peer);

}  // namespace fairway::control

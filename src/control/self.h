#pragma once

#include <string>

#include "control/bodies.h"
#include "control/connection.h"
#include "control/control.h"
#include "control/farewells.h"
#include "control/mailbox.h"
#include "core/runtime.h"

namespace fairway::control {

// What the parts of one control share: who this engine is and what it stands on. Owned by control's thread, which alone
// changes it; the mailbox is the named queue that others use.
struct Self {
  Self(const Options& options_in, const Runtime& runtime_in, Observer& observer_in);

  Options options;
  Runtime runtime;
  Observer& observer;
  Mailbox mailbox;
  Wire wire;
  Farewells farewells;
  Task* task = nullptr;  // control's own; set before anything else happens

  std::string name;
  std::string address;
  std::uint64_t incarnation;
  std::uint64_t started_unix_ns;

  // What this engine says of itself; each call has a later stamp.
  Identity identity(Intent intent, std::uint64_t session = 0, std::uint64_t received = 0);
  std::uint64_t next_stamp() { return ++stamp_; }
  bool is_self(const Identity& peer) const { return peer.incarnation == incarnation && peer.name == name; }
  std::uint64_t random_id();  // never 0
  Time jittered(Time delay);  // between half and one and a half of it

 private:
  std::uint64_t stamp_ = 0;
};

// "10.0.0.7:4000" for an engine that listens on 0.0.0.0:4000 and is seen from 10.0.0.7:51234; else what it advertises.
std::string reachable_address(const std::string& advertised, const std::string& seen_from);

// By its text alone, without asking a resolver: an address that means a different host for everyone who reads it.
bool looks_loopback(const std::string& address);

// Whether what `peer` says of itself belongs to the life of a peer that is known.
bool same_life(const PeerInfo& known, const Identity& peer);

}  // namespace fairway::control

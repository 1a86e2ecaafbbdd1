#pragma once

#include <memory>

#include "fairway/engine.h"

#include "pair.h"

namespace fairway::threads {

// What a peer that will die lends: an area for each thread here, and behind them the one its own receives land in.
// Nobody reads that one from afar: to read what is being received is a race of who asks for it.
inline constexpr std::size_t kTaken = kThreads * kArea;
inline constexpr std::size_t kLent = kTaken + kArea;

// An engine on the stand-in NIC nic1 that lends memory and takes what is sent under tag 1. The stand-ins are of one
// process, so none can be killed: die() makes of it what others see of an engine whose process was. It stops where it
// is, its sockets close, and its queue pairs hear nobody.
class Mortal {
 public:
  static Result<std::unique_ptr<Mortal>> open(const EngineOptions& options);
  ~Mortal();  // it is awake again, to close
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;

  [[nodiscard]] std::string address() const;
  std::size_t die();  // how many sockets closed

 private:
  struct Life;
  Mortal();
  std::unique_ptr<Life> life_;
};

}  // namespace fairway::threads

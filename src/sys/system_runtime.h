#pragma once

#include "core/runtime.h"
#include "sys/system_clock.h"
#include "sys/tcp_network.h"
#include "sys/thread_executor.h"

namespace fairway::sys {

// The operating system as a Runtime. Must outlive everything opened on it. A process may have several.
class SystemRuntime {
 public:
  Runtime runtime() { return {clock_, rng_, executor_, network_}; }

 private:
  SystemClock clock_;
  SystemRng rng_;
  ThreadExecutor executor_{clock_};
  TcpNetwork network_;
};

}  // namespace fairway::sys

#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "fairway/engine.h"

#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Engine::probe(): asks the workers for messages that wait for a receive. Any thread.
class MessageProbe {
 public:
  // `probes`: how many callers wait in it; while there are any, each worker tells of what comes (Services::probes).
  MessageProbe(const Workers& workers, Waiting& waiting, std::atomic<std::uint32_t>& probes)
      : workers_(workers), waiting_(waiting), probes_(probes) {}

  Result<Probed> probe(PeerId peer, std::uint64_t tag, Timeout timeout);

 private:
  [[nodiscard]] Status look(PeerId peer, std::uint64_t tag, std::optional<Probed>& found) const;

  const Workers& workers_;
  Waiting& waiting_;
  std::atomic<std::uint32_t>& probes_;
};

}  // namespace fairway::engine

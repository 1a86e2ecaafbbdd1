#pragma once

#include <atomic>
#include <string>

#include "fairway/status.h"

#include "nccl_net/abi.h"

namespace fairway::nccl {

// Writes to NCCL's own logger, controlled by NCCL_DEBUG. Any thread. Silent until NCCL provides a logger, or if it
// never does.
class Log {
 public:
  // `informs`: whether NCCL shows more than warnings.
  void use(abi::Logger logger, bool informs) {
    logger_.store(logger, std::memory_order_release);
    informs_.store(informs, std::memory_order_relaxed);
  }
  [[nodiscard]] bool informs() const { return informs_.load(std::memory_order_relaxed); }
  void info(const std::string& text, unsigned long subsystems = abi::kNet) const { say(abi::kInfo, subsystems, text); }
  void warn(const std::string& text) const { say(abi::kWarn, ~0ul, text); }

 private:
  void say(abi::LogLevel level, unsigned long subsystems, const std::string& text) const {
    if (const abi::Logger logger = logger_.load(std::memory_order_acquire))
      logger(level, subsystems, "fairway", 0, "NET/Fairway: %s", text.c_str());
  }
  std::atomic<abi::Logger> logger_{nullptr};
  std::atomic<bool> informs_{false};
};

// The NCCL result code for a failure; the log has the text.
inline abi::Code code_of(const Status& status) {
  switch (status.code()) {
    case ErrorCode::ok: return abi::kSuccess;
    case ErrorCode::peer_dead:
    case ErrorCode::unreachable:
    case ErrorCode::link_failed:
    case ErrorCode::stale_incarnation:
    case ErrorCode::closed:
    case ErrorCode::revoked: return abi::kRemoteError;
    case ErrorCode::invalid_argument:
    case ErrorCode::out_of_range: return abi::kInvalidArgument;
    case ErrorCode::truncated:
    case ErrorCode::unsupported: return abi::kInvalidUsage;
    case ErrorCode::system_error:
    case ErrorCode::resource_exhausted: return abi::kSystemError;
    default: return abi::kInternalError;
  }
}

}  // namespace fairway::nccl

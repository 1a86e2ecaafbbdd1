#pragma once

#include "core/runtime.h"

namespace fairway::sys {

// TCP over IPv4 and IPv6. Stateless; any thread. Tasks passed to it must come from this library's ThreadExecutor.
class TcpNetwork final : public Network {
 public:
  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override {
    return dial_in_segments(address, 0, wakes);
  }
  // Of addresses alone: a name is dialed as by dial().
  Result<std::unique_ptr<Channel>> dial_in_segments(const std::string& address, std::uint32_t most_bytes,
                                                    Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;
  Result<std::vector<InterfaceAddress>> addresses() override;
};

}  // namespace fairway::sys

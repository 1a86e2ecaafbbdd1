#include "sys/doorbell.h"

#include <cerrno>
#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "sys/error.h"

namespace fairway::sys {

Result<Doorbell> Doorbell::make() {
  Doorbell bell(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (bell.fd() < 0) return system_status(errno, "cannot make a doorbell (eventfd)");
  return bell;
}

// Neither may block: a descriptor that a peer sent can be of any kind and in any state.
void Doorbell::ring() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t result = ::write(fd_.get(), &one, sizeof one);
}

void Doorbell::drain() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t result = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace fairway::sys

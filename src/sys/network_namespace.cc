#include "sys/network_namespace.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sched.h>

namespace fairway::sys {
namespace {

Status failed(const char* what) {
  return {ErrorCode::system_error, std::string(what) + ": " + std::strerror(errno)};
}

}  // namespace

Result<NetworkNamespace> NetworkNamespace::own() {
  NetworkNamespace found;
  found.fd_ = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!found.fd_) return failed("cannot open this thread's network namespace");
  return found;
}

Result<NetworkNamespace> NetworkNamespace::make() {
  auto back = own();
  if (!back) return back.status();
  if (::unshare(CLONE_NEWNET) != 0) return failed("no network namespace can be made here");
  auto made = own();
  if (Status status = back->enter(); !status) return status;
  return made;
}

Status NetworkNamespace::enter() const {
  return ::setns(fd_.get(), CLONE_NEWNET) == 0 ? Status() : failed("cannot enter a network namespace");
}

InNamespace::InNamespace(const NetworkNamespace& there) {
  auto back = NetworkNamespace::own();
  if (!back) {
    status_ = back.status();
    return;
  }
  back_ = std::move(*back);
  status_ = there.enter();
}

InNamespace::~InNamespace() {
  if (status_) (void)back_.enter();
}

}  // namespace fairway::sys

#pragma once

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// A network namespace of this kernel: a host for tests and benchmarks. It has no name that could be left behind: the
// kernel takes it down, with its interfaces, when the last process that holds it ends, however that ends. A resource.
class NetworkNamespace {
 public:
  // A new one, in which lo is down. It needs root.
  static Result<NetworkNamespace> make();
  // That of the calling thread.
  static Result<NetworkNamespace> own();

  // For good, and for every process and thread that the calling thread starts from now on.
  [[nodiscard]] Status enter() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// The calling thread is in that namespace while this lives; threads, processes and sockets that it makes meanwhile stay
// there.
class InNamespace {
 public:
  explicit InNamespace(const NetworkNamespace& there);
  ~InNamespace();
  InNamespace(const InNamespace&) = delete;
  InNamespace& operator=(const InNamespace&) = delete;
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  NetworkNamespace back_;
  Status status_;
};

}  // namespace fairway::sys

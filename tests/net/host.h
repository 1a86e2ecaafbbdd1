#pragma once

#include <string>
#include <vector>

#include "sys/network_namespace.h"

namespace fairway::net {

// What a command printed, and how it ended.
struct Outcome {
  int status = -1;  // its exit status; -1: it could not be started, or died of a signal
  std::string output;
};

// A host for a test: a network namespace of this kernel. It has no name that could be left behind: the kernel takes it
// down, with its interfaces, when the last process that holds it ends, however that ends. A resource.
class Host {
 public:
  // Empty: hosts can be made here. Else what is missing, for GTEST_SKIP.
  static std::string why_not();

  Host();  // with lo up; a test failure when it cannot be made

  // Runs a program of this machine inside and waits for it. Safe beside other threads.
  [[nodiscard]] Outcome run(const std::vector<std::string>& command) const;
  // The same; a test failure when it does not end with 0. Gives its output.
  std::string must(const std::string& command) const;
  void set_sysctl(const std::string& path, const std::string& value) const;  // below /proc/sys/net
  // For good, and for every process and thread that the calling thread starts from now on.
  void enter() const;
  [[nodiscard]] int fd() const { return namespace_.fd(); }

 private:
  friend class Inside;
  sys::NetworkNamespace namespace_;
};

// The calling thread is in that host while this lives; threads and sockets that it makes meanwhile stay there.
class Inside {
 public:
  explicit Inside(const Host& host);

 private:
  sys::InNamespace inside_;
};

bool has_ipv6();

// A cable between two hosts: an interface of that name at each, with 10.77.<number>.1 and, where the kernel has IPv6,
// fd77:<number>::1 at the first and .2 and ::2 at the second.
void cable(const Host& first, const Host& second, const std::string& name, int number);
void set_link(const Host& host, const std::string& name, bool up);

// Connections can be destroyed here: empty, or why not.
std::string why_not_destroy();
// Those connections of the host that match a filter of ss end, with a reset to their other end. A test failure when
// there is none.
void destroy(const Host& host, const std::string& filter);

}  // namespace fairway::net

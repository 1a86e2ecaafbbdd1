#pragma once

#include <memory>
#include <vector>

#include "control/connection.h"
#include "control/directory_table.h"
#include "control/self.h"

namespace fairway::control {

// Serves the directory to other engines. It holds at most max_peers connections and closes one that is silent for a
// minute (engines renew their record every few seconds). Runs on the control thread.
class DirectoryServer {
 public:
  explicit DirectoryServer(Self& self) : self_(self), table_(self.wire.key) {}

  DirectoryTable& table() { return table_; }
  bool full() const { return clients_.size() >= self_.options.max_peers; }
  void add(std::unique_ptr<Connection> connection, Time now);  // `connection` is authenticated and accepted
  void close() { clients_.clear(); }
  Time step(Time now);

  static constexpr Time kPatience = 60 * kSecond;

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    Time last_heard;
  };
  bool step(Client& client, Time now);
  bool on_frame(Connection& connection, const Frame& frame);

  Self& self_;
  DirectoryTable table_;
  std::vector<Client> clients_;
};

}  // namespace fairway::control

#pragma once

#include <memory>
#include <vector>

#include "control/connection.h"
#include "control/context.h"
#include "control/directory_table.h"

namespace fairway::control {

// Serves the directory to other engines. It holds at most max_peers connections and closes one that is silent for a
// minute (engines renew their record every few seconds). Runs on the control thread.
class DirectoryServer {
 public:
  explicit DirectoryServer(ControlContext& context) : context_(context), table_(context.wire.key) {}

  DirectoryTable& table() { return table_; }
  bool full() const { return clients_.size() >= context_.options.max_peers; }
  void add(std::unique_ptr<Connection> connection, Time now);  // `connection` is authenticated and accepted
  void close() { clients_.clear(); }
  Time step(Time now);

  static constexpr Time kIdleTimeout = 60 * kSecond;

 private:
  struct Client {
    std::unique_ptr<Connection> connection;
    Time last_heard;
  };
  bool step(Client& client, Time now);
  bool on_frame(Connection& connection, const Frame& frame);

  ControlContext& context_;
  DirectoryTable table_;
  std::vector<Client> clients_;
};

}  // namespace fairway::control

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "fairway/status.h"

#include "control/connection.h"
#include "control/context.h"
#include "control/handshake.h"

namespace fairway::control {

// The in-memory table of records that this engine serves, of bounded size. Used on the control thread.
class DirectoryTable {
 public:
  explicit DirectoryTable(JobKey& key) : key_(key) {}

  // Stores a record that is signed, not expired, and not older than the stored one of that name.
  Status publish(const std::string& record, std::uint64_t unix_ns);
  Status withdraw(const std::string& name, const std::string& started);
  Result<std::string> lookup(const std::string& name, std::uint64_t unix_ns);
  std::size_t size() const { return entries_.size(); }

  static constexpr std::size_t kMaxNames = 65536;

 private:
  struct Entry {
    std::string record;
    std::uint64_t expires_unix_ms = 0;
  };
  void drop_expired(std::uint64_t unix_ns);

  JobKey& key_;
  std::unordered_map<std::string, Entry> entries_;
};

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

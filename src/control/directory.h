#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fairway/status.h"

#include "control/context.h"
#include "core/time.h"

namespace fairway::control {

class DirectoryTable;

// A store of records. It takes requests without blocking and answers each exactly once, in any order. Signing, checking
// and retrying are not its job: DirectoryClient does that. Used on the control thread.
class Directory {
 public:
  enum class Kind : std::uint8_t { publish, withdraw, lookup };
  struct Request {
    Kind kind = Kind::lookup;
    std::uint64_t id = 0;
    std::string name;
    std::string record;   // publish: the encoded record
    std::string started;  // withdraw: removes only the record with this start time (started_text)
    Time lifetime = 0;    // publish
  };
  class Answers {
   public:
    virtual ~Answers() = default;
    // publish, withdraw: empty, or already_exists when an engine that started later has the name. lookup: the record,
    // or not_found. Any other code: the store did not execute the request. ask() may call this before it returns.
    virtual void answered(std::uint64_t id, Result<std::string> result) = 0;
    // The store is unreachable. When it comes back it may have lost every record.
    virtual void lost() = 0;
  };

  virtual ~Directory() = default;
  virtual void ask(Request request, Time now) = 0;
  virtual Time step(Time now) = 0;
};

// Limits for a store at another address.
struct RemoteDirectoryLimits {
  static constexpr Time kAnswerBound = 2 * kSecond;  // time limit of a handshake, and of each answer
  static constexpr std::size_t kMaxWaiting = 4096;
  // Back-off before the next connection, after this many failures in a row.
  static constexpr Time pause_after(std::uint32_t failures) {
    constexpr Time kFirst = 20 * kMillisecond, kLast = kSecond;
    return std::min(kLast, kFirst << std::min<std::uint32_t>(failures, 10));
  }
};

// The table that this engine serves, used by the engine itself.
std::unique_ptr<Directory> open_local_directory(DirectoryTable& table, Directory::Answers& answers, Clock& clock);
// The table served by the engine at `address`.
std::unique_ptr<Directory> open_embedded_directory(const std::string& address, ControlContext& context,
                                                   Directory::Answers& answers);
// A Redis server, redis://[:password@]host:port[/prefix]. Error: unsupported when this build has no hiredis.
Result<std::unique_ptr<Directory>> open_redis_directory(const std::string& url, ControlContext& context,
                                                        Directory::Answers& answers);
// A cluster of etcd, etcd://[user:password@]host:port[,host:port...][/prefix]. Error: unsupported when this build lacks
// http-parser or nlohmann-json.
Result<std::unique_ptr<Directory>> open_etcd_directory(const std::string& url, ControlContext& context,
                                                       Directory::Answers& answers);

// Checks the value of Options::directory; invalid_argument when it is none of the allowed forms.
Status check_directory(const std::string& directory);

}  // namespace fairway::control

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fairway/status.h"

#include "control/self.h"
#include "core/time.h"

namespace fairway::control {

class DirectoryTable;

// Where records are kept: a store that takes requests and answers each once, in any order, without blocking. It neither
// signs nor checks records nor tries again: Naming does. Control's thread.
class Directory {
 public:
  enum class Kind : std::uint8_t { publish, withdraw, lookup };
  struct Request {
    Kind kind = Kind::lookup;
    std::uint64_t id = 0;
    std::string name;
    std::string record;   // publish: encoded
    std::string started;  // withdraw: only the record of that start (started_text)
    Time lifetime = 0;    // publish
  };
  class Answers {
   public:
    virtual ~Answers() = default;
    // publish and withdraw: empty, or already_exists when a later engine has the name. lookup: the record, or
    // not_found. Anything else: the store did not do it. May be called from ask().
    virtual void answered(std::uint64_t id, Result<std::string> result) = 0;
    // The store is out of reach; by the time it is back it may have forgotten everything.
    virtual void lost() = 0;
  };

  virtual ~Directory() = default;
  virtual void ask(Request request, Time now) = 0;
  virtual Time step(Time now) = 0;
};

// Of a store at another address.
struct FarDirectory {
  static constexpr Time kAnswerBound = 2 * kSecond;  // for a handshake, and for each answer
  static constexpr std::size_t kMostWaiting = 4096;
  // Before connecting again, after so many failures in a row.
  static constexpr Time pause_after(std::uint32_t failures) {
    constexpr Time kFirst = 20 * kMillisecond, kLast = kSecond;
    return std::min(kLast, kFirst << std::min<std::uint32_t>(failures, 10));
  }
};

// Served by this engine, for itself.
std::unique_ptr<Directory> open_local_directory(DirectoryTable& table, Directory::Answers& answers, Clock& clock);
// Served by the engine at that address.
std::unique_ptr<Directory> open_embedded_directory(const std::string& address, Self& self, Directory::Answers& answers);
// redis://[:password@]host:port[/prefix]. unsupported when this build has no hiredis.
Result<std::unique_ptr<Directory>> open_redis_directory(const std::string& url, Self& self,
                                                        Directory::Answers& answers);

// What Options::directory may be; invalid_argument otherwise.
Status check_directory(const std::string& directory);

}  // namespace fairway::control

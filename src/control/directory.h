#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fairway/status.h"

#include "control/context.h"
#include "control/handshake.h"
#include "core/time.h"

namespace fairway::control {

// A directory entry: the address of the engine with this name. A value.
struct Record {
  std::string name;
  std::string address;
  std::uint64_t incarnation = 0;
  std::uint64_t started_unix_ns = 0;  // when two engines have one name, the one that started later keeps it
  std::uint64_t expires_unix_ms = 0;  // the record is invalid after this time unless renewed
};

inline constexpr std::uint64_t kNsPerMs = 1'000'000;
inline constexpr std::size_t kMaxRecord = 768;
inline constexpr std::size_t kStartedText = 16;  // a record begins with started_unix_ns as hexadecimal text: any store
                                                 // can tell the newer one by comparing text

std::string started_text(std::uint64_t started_unix_ns);

// Appends a MAC by the job's key: someone who can write to the store still cannot redirect engines.
Result<std::string> encode_record(JobKey& key, const Record& record);

// Errors: protocol_error: not a record; authentication_failed: not signed with this job's key; not_found: expired.
Result<Record> decode_record(JobKey& key, std::string_view bytes, std::uint64_t unix_ns);

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

// What a server says, as part of an error: one short line of plain characters, whatever it sent.
inline std::string server_text(std::string_view said) {
  constexpr std::size_t kMost = 200;
  std::string text(said.substr(0, kMost));
  std::replace_if(
      text.begin(), text.end(), [](char each) { return each < 32 || each > 126; }, '?');
  return said.size() > kMost ? text + "..." : text;
}

}  // namespace fairway::control

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fairway/status.h"

#include "control/proof.h"

namespace fairway::control {

// What a directory keeps of one engine: under which name it can be reached where. A value.
struct Record {
  std::string name;
  std::string address;
  std::uint64_t incarnation = 0;
  std::uint64_t started_unix_ns = 0;  // of two engines with one name the one that started later has it
  std::uint64_t expires_unix_ms = 0;  // a record that nobody renews is void
};

inline constexpr std::size_t kMaxRecord = 768;
inline constexpr std::size_t kStartedText = 16;  // a record begins with started_unix_ns as hexadecimal text: any store
                                                 // can tell the newer one by comparing text

std::string started_text(std::uint64_t started_unix_ns);

// With a MAC by the job's key, so that who can write to the store cannot send engines anywhere.
Result<std::string> encode_record(JobKey& key, const Record& record);

// protocol_error: not a record; authentication_failed: not signed with this job's key; not_found: expired.
Result<Record> decode_record(JobKey& key, std::string_view bytes, std::uint64_t unix_ns);

}  // namespace fairway::control

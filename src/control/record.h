#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fairway/status.h"

#include "control/proof.h"

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

}  // namespace fairway::control

#include "control/record.h"

#include <array>

#include <fmt/format.h>

#include "control/bodies.h"
#include "core/bytes.h"

namespace fairway::control {
namespace {

constexpr std::uint16_t kVersion = 1;
// Allowed clock skew between two hosts before a fresh record counts as expired.
constexpr std::uint64_t kSkewMs = 5'000;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status malformed_record(std::string_view why) {
  return {ErrorCode::protocol_error, fmt::format("the directory holds a malformed record: {}", why)};
}

}  // namespace

std::string started_text(std::uint64_t started_unix_ns) {
  return fmt::format("{:016x}", started_unix_ns);
}

Result<std::string> encode_record(JobKey& key, const Record& record) {
  std::array<std::byte, kMaxRecord> bytes{};
  ByteWriter out(bytes);
  out.put_bytes(bytes_of(started_text(record.started_unix_ns))).put(kVersion);
  out.put_text(record.name).put_text(record.address).put(record.incarnation).put(record.expires_unix_ms);
  const auto mac = key.derive(kRecordProof, {out.written()});
  if (!mac) return Status(ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256");
  out.put_bytes(*mac);
  if (!out.ok() || record.name.size() > kMaxName || record.address.size() > kMaxName)
    return Status(ErrorCode::invalid_argument, fmt::format("the name or address is longer than {} bytes", kMaxName));
  return std::string(reinterpret_cast<const char*>(bytes.data()), out.size());
}

Result<Record> decode_record(JobKey& key, std::string_view text, std::uint64_t unix_ns) {
  const auto bytes = bytes_of(text);
  if (bytes.size() > kMaxRecord || bytes.size() < sizeof(Mac) + kStartedText) return malformed_record("its size");
  const auto content = bytes.first(bytes.size() - sizeof(Mac));
  const auto mac = key.derive(kRecordProof, {content});
  if (!mac || !same(*mac, bytes.last(sizeof(Mac))))
    return Status(
        ErrorCode::authentication_failed,
        "the directory's record is not signed with this job's key: it was forged, or another job uses this name");
  ByteReader reader(content);
  Record record;
  for (const std::byte digit : reader.get_bytes(kStartedText)) {
    const auto letter = static_cast<char>(digit);
    const bool decimal = letter >= '0' && letter <= '9';
    if (!decimal && !(letter >= 'a' && letter <= 'f')) return malformed_record("its start time");
    record.started_unix_ns =
        record.started_unix_ns << 4 | static_cast<std::uint64_t>(decimal ? letter - '0' : letter - 'a' + 10);
  }
  if (reader.get<std::uint16_t>() != kVersion)
    return Status(ErrorCode::version_mismatch,
                  "the directory's record was written by another version of Fairway: update the older one");
  record.name = reader.get_text();
  record.address = reader.get_text();
  record.incarnation = reader.get<std::uint64_t>();
  record.expires_unix_ms = reader.get<std::uint64_t>();
  if (!reader.done()) return malformed_record("its size");
  if (record.name.empty() || record.name.size() > kMaxName || record.address.empty() ||
      record.address.size() > kMaxName)
    return malformed_record("its name or address");
  if (record.expires_unix_ms + kSkewMs < unix_ns / kNsPerMs)
    return Status(ErrorCode::not_found, fmt::format("the record of {} expired: its engine is gone", record.name));
  return record;
}

}  // namespace fairway::control

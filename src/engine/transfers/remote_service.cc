#include "engine/transfers/remote_service.h"

#include <atomic>
#include <cstring>

#include "core/crc32c.h"

namespace fairway::engine {
namespace {

constexpr std::uint64_t kLongestSum = 1024 * 1024;

DeviceOperation device_work(DeviceOperation::Kind kind, const RequestHead& head, std::uint64_t offset,
                            std::uint64_t length) {
  DeviceOperation work;
  work.kind = kind;
  work.token = head.token;
  work.serial = head.serial;
  work.region = head.region;
  work.offset = offset;
  work.length = length;
  return work;
}

}  // namespace

void RemoteService::reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
                          std::span<const std::byte> data) {
  peer_.send(record::Reply{token, serial, code, value, {data}});
}

void RemoteService::on_put(const record::Put& put) {
  const auto data = put.payload.bytes;
  transport::RegionTable::Resolved target;
  const ErrorCode code =
      peer_.regions().resolve_for_cpu(put.head.region, put.offset, data.size(), Access::write, target);
  if (code == ErrorCode::ok && !data.empty()) std::memcpy(target.address, data.data(), data.size());
  reply(put.head.token, put.head.serial, code, 0);
}

void RemoteService::on_get(const record::Get& get) {
  const auto& [head, offset, length] = get;
  if (length > record_payload_) return peer_.violation("a get of more than a record carries");
  transport::RegionTable::Resolved source;
  const ErrorCode code = peer_.regions().resolve_for_cpu(head.region, offset, length, Access::read, source);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  reply(head.token, head.serial, code, 0, std::span<const std::byte>(source.address, length));
}

void RemoteService::on_atomic(const record::Atomic& atomic) {
  const auto& [head, offset, operation, operand, expected] = atomic;
  if (operation > record::Atomic::kSet) return peer_.violation("an atomic of no known operation");
  transport::RegionTable::Resolved target;
  ErrorCode code = peer_.regions().resolve(head.region, offset, sizeof(std::uint64_t), Access::atomic, target);
  if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(target.address) % sizeof(std::uint64_t) != 0)
    code = ErrorCode::invalid_argument;
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(target.kind)) {
    DeviceOperation work = device_work(DeviceOperation::Kind::atomic, head, offset, sizeof(std::uint64_t));
    work.operation = operation;
    work.operand = operand;
    work.expected = expected;
    return parts_.on_device(work);
  }
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(target.address));
  std::uint64_t old = expected;
  if (operation == record::Atomic::kAdd) old = word.fetch_add(operand);
  if (operation == record::Atomic::kCompareSwap) (void)word.compare_exchange_strong(old, operand);
  if (operation == record::Atomic::kSet) old = word.exchange(operand);
  parts_.notice();
  reply(head.token, head.serial, code, old);
}

void RemoteService::on_sum(const record::Sum& sum) {
  const auto& [head, offset, length] = sum;
  if (length > kLongestSum) return peer_.violation("a request for the checksum of more than 1 MiB");
  transport::RegionTable::Resolved memory;
  // Read or write access permits the checksum.
  ErrorCode code = peer_.regions().resolve(head.region, offset, length, Access::read, memory);
  if (code == ErrorCode::access_denied)
    code = peer_.regions().resolve(head.region, offset, length, Access::write, memory);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(memory.kind) && length > 0)
    return parts_.on_device(device_work(DeviceOperation::Kind::peers_checksum, head, offset, length));
  reply(head.token, head.serial, code, crc32c(0, std::span<const std::byte>(memory.address, length)));
}

void RemoteService::on_flush(const record::Flush& flush) {
  const RequestHead& head = flush.head;
  ErrorCode code = parts_.flush(head.region).code();
  // Last: writes to a region that has ended meanwhile are dropped.
  transport::RegionTable::Resolved memory;
  if (code == ErrorCode::ok) code = peer_.regions().resolve(head.region, 0, 0, Access::none, memory);
  reply(head.token, head.serial, code, 0);
}

}  // namespace fairway::engine

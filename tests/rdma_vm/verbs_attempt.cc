#include "rdma_vm/verbs_attempt.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

namespace fairway::rdma_vm {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kSource = 0;
constexpr std::size_t kTarget = 32 << 10;
constexpr std::size_t kRoute = 40;          // a datagram's receive begins with where it came from
constexpr milliseconds kCompletion{20000};  // bounds of a busy host: on the software device either takes below 1 ms
constexpr milliseconds kArrival{1000};      // of what no completion vouches for

struct Kind {
  const char* name;
  ibv_wr_opcode code;
  bool received;  // ends a receive of the peer
  bool pulls;     // has the peer's bytes here
};

const Kind& kind_of(Operation operation) {
  static constexpr std::array<Kind, 6> kKinds = {{{"SEND", IBV_WR_SEND, true, false},
                                                  {"RECV", IBV_WR_SEND, true, false},
                                                  {"WRITE", IBV_WR_RDMA_WRITE, false, false},
                                                  {"WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, true, false},
                                                  {"READ", IBV_WR_RDMA_READ, false, true},
                                                  {"ATOMIC", IBV_WR_ATOMIC_FETCH_AND_ADD, false, true}}};
  return kKinds[static_cast<std::size_t>(operation)];
}

Fate refused(const char* by, int error) {
  return {false, std::string(by) + ": " + std::strerror(error)};
}

int post(Side& from, const Side& to, ibv_qp_type kind, Operation operation, std::size_t size) {
  ibv_sge piece = from.piece(kind_of(operation).pulls ? kTarget : kSource, size);
  ibv_send_wr request{};
  request.opcode = kind_of(operation).code;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &piece;
  request.num_sge = 1;
  const std::uint64_t there = to.address(kind_of(operation).pulls ? kSource : kTarget);
  if (kind == IBV_QPT_UD) {  // the same bytes of the request, whatever is asked for
    request.wr.ud = {from.way(), to.number(), Side::kKey};
  } else if (operation == Operation::atomic) {
    request.wr.atomic = {there, 1, 0, to.remote_key()};
  } else {
    request.wr.rdma = {there, to.remote_key()};
  }
  return from.post(request);
}

bool comes_to_be(const std::vector<std::byte>& expected, const std::byte* at) {
  const auto end = std::chrono::steady_clock::now() + kArrival;
  do {
    if (std::memcmp(expected.data(), at, expected.size()) == 0) return true;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

const char* name_of(Operation operation) {
  return kind_of(operation).name;
}

Fate attempt(Side& from, Side& to, ibv_qp_type kind, Operation operation, std::size_t size) {
  if (operation == Operation::atomic) size = sizeof(std::uint64_t);
  if (const int error = Side::join(from, to, kind); error != 0) return refused("connect", error);
  Side& source = kind_of(operation).pulls ? to : from;
  Side& target = kind_of(operation).pulls ? from : to;
  std::fill(target.memory().begin(), target.memory().end(), std::byte{0});
  std::vector<std::byte> expected(size);
  for (std::size_t i = 0; i < size; ++i) expected[i] = std::byte((i * 31 + 7) & 0xff);
  std::copy(expected.begin(), expected.end(), source.memory().begin() + kSource);

  const std::size_t route = kind == IBV_QPT_UD ? kRoute : 0;
  if (kind_of(operation).received) {
    if (const int error = to.post_receive(kTarget, size + route); error != 0) return refused("receive", error);
  }
  if (const int error = post(from, to, kind, operation, size); error != 0) return refused("post", error);

  ibv_wc done{};
  if (!from.wait(done, kCompletion)) return {false, "no completion"};
  if (done.status != IBV_WC_SUCCESS) return {false, ibv_wc_status_str(done.status)};
  if (kind_of(operation).received) {
    ibv_wc received{};
    if (!to.wait(received, kArrival)) return {false, "completed, and lost without a word"};
    if (received.status != IBV_WC_SUCCESS) return {false, ibv_wc_status_str(received.status)};
    if (received.byte_len != size + route) return {false, "received " + std::to_string(received.byte_len) + " bytes"};
  }
  if (!comes_to_be(expected, target.memory().data() + kTarget + route)) return {false, "completed without its bytes"};
  if (operation == Operation::atomic) {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
    std::memcpy(&before, expected.data(), size);
    std::memcpy(&after, source.memory().data() + kSource, size);
    if (after != before + 1) return {false, "fetched, but did not add"};
  }
  return {true, "carried"};
}

}  // namespace fairway::rdma_vm

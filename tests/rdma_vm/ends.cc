#include "rdma_vm/ends.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

namespace fairway::rdma {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t count(const std::string& rows, const std::string& word) {
  std::istringstream lines(rows);
  std::uint64_t found = 0;
  for (std::string line; std::getline(lines, line);) found += line.find(word) != std::string::npos;
  return found;
}

}  // namespace

bool over_iwarp() {
  return std::filesystem::exists("/sys/class/infiniband/siw0");
}

std::string device_for(const std::string& rxe) {
  return over_iwarp() ? "siw" + rxe.substr(3) : rxe;
}

EngineOptions on(const std::string& device, milliseconds peer_timeout) {
  EngineOptions options;
  options.name = device_for(device);
  options.transports = {"verbs"};
  options.rdma.devices = {options.name};
  options.peer_timeout = peer_timeout;
  return options;
}

std::string said_by(const std::string& command) {
  std::string out;
  FILE* const pipe = ::popen(("PATH=$PATH:/usr/sbin:/sbin; " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "cannot start a shell";
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) > 0;) out.append(part.data(), got);
  const int status = ::pclose(pipe);
  return status == 0 ? out : out + "\n(status " + std::to_string(status) + ")";
}

void must(const std::string& command) {
  const std::string out = said_by(command);
  EXPECT_EQ(out.find("(status "), std::string::npos) << command << ": " << out;
}

bool in_guest() {
  return std::getenv("FAIRWAY_VM") != nullptr;
}

void pull_cable() {
  must("ip link set v1 down");
}
void mend_cable() {
  must(FAIRWAY_WIRE " up v1");
}

bool at_length() {
  return std::getenv("FAIRWAY_LONG") != nullptr;
}

void disturb(const std::string& netem) {
  const std::string rdma = over_iwarp() ? "protocol 6 0xff" : "dport 4791 0xffff";
  for (const char* end : {"v0", "v1"}) {
    const std::string qdisc = std::string("tc qdisc add dev ") + end;
    must(qdisc + " root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
    must(qdisc + " parent 1:3 handle 30: netem limit 20000 " + netem);
    must(std::string("tc filter add dev ") + end + " parent 1: protocol ip u32 match ip " + rdma + " flowid 1:3");
  }
}
void calm() {
  for (const char* end : {"v0", "v1"}) must(std::string("tc qdisc del dev ") + end + " root");
}

Held held() {
  const std::string rows = said_by(
      "rdma resource show pd; rdma resource show cq; rdma resource show qp; "
      "rdma resource show mr");
  Held held{count(rows, " pdn "), 0, count(rows, " lqpn "), count(rows, " mrn "), 0};
  held.queues = count(rows, " cqn ");
  held.domains = count(said_by("rdma resource show pd"), " pdn ");
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++held.files;
  return held;
}

std::string text(const Held& held) {
  std::ostringstream out;
  out << held.domains << " protection domains, " << held.queues << " completion queues, " << held.pairs
      << " queue pairs, " << held.regions << " memory regions, " << held.files << " descriptors";
  return out.str();
}

void Ends::SetUp() {
  if (!in_guest()) GTEST_SKIP() << "not in a guest, whose cable may be pulled";
}

void Ends::TearDown() {
  near_.reset();
  far_.reset();
}

void Ends::meet(milliseconds peer_timeout, const std::vector<std::string>& transports) {
  EngineOptions there = on("rxe1", peer_timeout), here = on("rxe0", peer_timeout);
  here.transports = there.transports = transports;
  ASSERT_NO_FATAL_FAILURE(meet_between(here, there));
  ASSERT_TRUE(until_up(true));
}

void Ends::meet_between(const EngineOptions& here, const EngineOptions& there) {
  far_.emplace(there);
  ASSERT_EQ(far_->failure, "");
  near_.emplace(here);
  ASSERT_TRUE(near_->opened) << near_->opened.to_string();
  const Status met = near_->meet(far_->address);
  ASSERT_TRUE(met) << met.to_string();
}

void Ends::start(std::vector<TransferId>& ids, int count) {
  for (int i = 0; i < count; ++i) {
    const auto id = near_->write(net::kBytes);
    EXPECT_TRUE(id) << id.status().to_string();
    if (id) ids.push_back(*id);
  }
}

milliseconds Ends::all_end_well(const std::vector<TransferId>& ids, std::uint64_t seed) {
  const auto start = Clock::now();
  for (const TransferId id : ids) {
    const Status status = near_->finish(id);
    EXPECT_TRUE(status) << status.to_string();
  }
  const milliseconds took = since(start);
  EXPECT_EQ(far_->check(seed, net::kBytes), "");
  return took;
}

void Ends::works(std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < bytes; ++i) near_->ours.address[i] = net::pattern(5, i);
  const Status there = near_->finish(near_->write(bytes));
  ASSERT_TRUE(there) << there.to_string();
  const Status back = near_->finish(near_->read(bytes));
  ASSERT_TRUE(back) << back.to_string();
  EXPECT_TRUE(std::equal(near_->back.address, near_->back.address + bytes, near_->ours.address));
}

bool Ends::until_up(bool up, const std::string& transport) {
  const auto until = Clock::now() + net::kHang;
  const auto is_up = [&] { return near_->links_text().find(transport) != std::string::npos; };
  while (is_up() != up && Clock::now() < until) std::this_thread::sleep_for(milliseconds(2));
  return is_up() == up;
}

milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

void tell(const std::string& what, milliseconds took) {
  std::printf("  %s: %lld ms\n", what.c_str(), static_cast<long long>(took.count()));
}

}  // namespace fairway::rdma

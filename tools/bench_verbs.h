#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench_rows.h"

// `fairway bench verbs`: what RDMA devices do by themselves, through libibverbs and without an engine, between two
// processes of this host.
//   bench_verbs          the command
//   bench_verbs_plan     what queue pairs allow, what a row needs
//   bench_verbs_end      one end: its port, its memory, its queue pairs
//   bench_verbs_batch    bytes of a batch: put in place, and compared
//   bench_verbs_wire     what the two processes say to each other
//   bench_verbs_serve    the other process
//   bench_verbs_run      the measuring one
//   bench_verbs_report   table and fields
namespace fairway::tool::bench::raw {

enum class Type : std::uint8_t { rc, uc, ud };
enum class Action : std::uint8_t { write, write_immediate, read, send, fetch_add, compare_swap };
inline constexpr Type kTypes[] = {Type::rc, Type::uc, Type::ud};
inline constexpr Action kActions[] = {Action::write, Action::write_immediate, Action::read,
                                      Action::send,  Action::fetch_add,       Action::compare_swap};
std::string name_of(Type type);  // "RC"
std::string name_of(Action action);

// What a row measures. A value that both processes have.
struct Shape {
  Type type = Type::rc;
  Action action = Action::write;
  std::uint64_t size = 8;
  std::uint32_t queue_pairs = 1;
  std::uint32_t post_list = 1;     // work requests that one doorbell rings for
  std::uint32_t gathers = 1;       // pieces of local memory that each of them has
  std::int32_t inline_bytes = -1;  // up to this size they carry their bytes themselves; less than 0: as the device can
  std::uint32_t mtu = 0;           // bytes; 0: the port's
  bool events = false;             // both sides sleep on the completion channel; else both poll

  [[nodiscard]] bool atomic() const { return action == Action::fetch_add || action == Action::compare_swap; }
  // It takes a receive at the other side, whose completion says that it arrived.
  [[nodiscard]] bool announced() const { return action == Action::send || action == Action::write_immediate; }
  // Nothing says that it arrived: the other side looks at its memory.
  [[nodiscard]] bool watched() const { return action == Action::write && type == Type::uc; }
  [[nodiscard]] bool answered() const { return announced() || watched(); }  // one at a time: there and back
  // Bytes from one operation's memory to the next one's; how many operations have memory of their own.
  [[nodiscard]] std::uint64_t stride() const { return (size + 63) / 64 * 64; }
  [[nodiscard]] std::uint32_t slots() const;
  [[nodiscard]] std::uint32_t most_on_one_pair() const;  // of a batch's operations
};
std::string text_of(const Shape& shape);  // "UD send of 64 B"

inline constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 30;  // of one side's, each way

// invalid_argument, naming type and operation: what no device does.
Status allowed(Type type, Action action, bool events);
Status fits(const Shape& shape, std::uint32_t path_mtu);  // its size

// What one side asked of its device.
struct Counts {
  std::uint64_t doorbells = 0, requests = 0, completions = 0;
  std::uint64_t receive_doorbells = 0, receives = 0;
  std::uint64_t sleeps = 0;
  Counts since(const Counts& earlier) const;
  void add(const Counts& other);
};

struct Row {
  Shape shape;
  std::string from, to;         // "rxe0/1"
  std::uint32_t mtu = 0;        // bytes, of the path
  std::uint32_t gid_index = 0;  // of the measuring side
  bool is_inline = false;
  std::uint64_t rounds = 0;       // one at a time
  double p50_us = 0, p99_us = 0;  // of these
  std::uint64_t operations = 0;   // many at once, that arrived
  double bytes_per_second = 0;    // of these; so is the rest
  double operations_per_second = 0;
  double cpu_seconds_per_gib = 0;  // of both processes
  Counts ours, theirs;
  std::uint64_t lost = 0, verified_bytes = 0;                           // of all
  [[nodiscard]] std::uint64_t posted() const { return ours.requests; }  // each operation is one work request
};

struct Plan {
  std::vector<Shape> shapes;           // the size is still to be held against the path's MTU
  bool drop_what_does_not_fit = true;  // else that is an error
  std::string from, to;                // devices or ports; empty: the first two that there are
  int gid_index = -1;                  // less than 0: as the transport chooses
  double seconds_per_row = 0.15;
};
// Forks the other process; so before any thread is there.
Status run(const Plan& plan, const Meter& meter, std::vector<Row>& rows);

// The ports that run() takes where none is named, the measuring side's first; empty: this machine has none that works.
struct PortName {
  std::string device;  // "mlx5_0"
  int number = 1;
  int gid_index = 0;
  std::string address;  // "10.0.0.1"
};
std::vector<PortName> two_ports();

std::string table(const std::vector<Row>& rows);
Fields fields(const Row& row);

}  // namespace fairway::tool::bench::raw

namespace CLI {
class App;
}
namespace fairway::tool {
class Tool;
void add_bench_verbs(Tool& tool, CLI::App& bench);  // `fairway bench verbs`
}  // namespace fairway::tool

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fairway/fairway.h"

#include "cores.h"

// `fairway bench`: what is measured, by whom, and what comes out.
// Beside this file stands what several of its commands share; each folder is one of them:
//   cores            whether other work had the cores meanwhile
//   memory           memories by name; gpu: those of GPUs, and the roof there
//   pattern          bytes that show where they belong
//   rows             rows as JSON and CSV
//   paths/case       which paths, beside which roof
//   paths/gpu_paths  the paths to GPU memory, and the kinds of it, that a person can force
//   paths/measure    cases, each with a process of its own
//   paths/path       work done by Fairway; paths/peer: the other process; paths/orders: what the one asks of the other
//   paths/roof       the same work by the least that this machine needs for it; paths/fabric: that of libfabric
//   paths/run        the two in turns
//   paths/report     tables, JSON, CSV; paths/matrix: memories against memories
//   peers            other programs that measure the same paths, in turns with ours
//   load             machines that are busy, idle or lose processes
//   collectives      groups of ranks
namespace fairway::tool::bench {

class Meter;

enum class Operation : std::uint8_t {
  write,
  read,
  send,        // a message and its receive, there and back: half of the round trip is reported
  notify,      // a write with an event for the target, there and back: half of the round trip is reported
  count,       // the same with a counter
  fetch_add,   // of eight bytes; measured where it is named
  send_local,  // as send, complete at the sender once its bytes are copied; measured where it is named
};
std::string name_of(Operation operation);
inline bool sends(Operation operation) {
  return operation == Operation::send || operation == Operation::send_local;
}
inline bool one_sided(Operation operation) {
  return operation == Operation::write || operation == Operation::read || operation == Operation::fetch_add;
}

struct Settings {
  bool sleeping = false;    // both sides wait in the kernel; else both poll
  std::uint64_t most = 0;   // bytes of each memory
  std::uint64_t pages = 0;  // of one request; 0: one piece
  std::uint64_t depth = 1;  // writes or reads in flight at once
  std::string from, to;     // memories
  std::string job_key, directory;
  std::string machine;           // a snapshot of this machine; empty: it is inspected
  std::vector<std::string> via;  // transports; empty: as the engine chooses
  RdmaOptions rdma;
};

// What the machine's model expects of a path, bytes per second; 0: no figure.
struct Expected {
  double low = 0, high = 0;
  std::string bound;  // what limits it
};

// A number of rounds that are checked together. Round i works on bytes [place * size, (place + 1) * size).
struct Batch {
  Operation operation = Operation::write;
  std::uint64_t size = 0;
  std::uint64_t rounds = 0;
  std::uint64_t places = 0;  // that the rounds walk over, again and again
  std::uint64_t pages = 0;
  std::uint64_t depth = 1;
  std::uint64_t seed = 0;
  [[nodiscard]] std::uint64_t place(std::uint64_t round) const { return round % places; }
};

// What a batch cost, on both sides together.
struct Cost {
  double cpu_seconds = 0;
  double copied_bytes = 0;  // by us
  double system_calls = 0;
  std::uint64_t verified_bytes = 0;
};

// Something that can do the work. begin() and end() are not timed; once() is, and ends when the bytes have arrived.
// With a larger depth it ends when the next `depth` operations have completed; each is followed by another until the
// last round.
class Mover {
 public:
  virtual ~Mover() = default;
  [[nodiscard]] virtual bool does(const Batch& batch) const = 0;
  virtual Status begin(const Batch& batch) = 0;
  virtual Status once(const Batch& batch, std::uint64_t round) = 0;
  virtual Result<Cost> end(const Batch& batch) = 0;  // checksum_mismatch when a byte is not where it belongs
  [[nodiscard]] virtual Expected expected(Operation) const { return {}; }
  // How the bytes went, in explain()'s words.
  [[nodiscard]] virtual std::string path_description(Operation) const { return {}; }
  // It was stopped within a batch: ending it must not wait for the other side.
  virtual void abandon() {}
};

// Work over Fairway with the process at `address`.
Result<std::unique_ptr<Mover>> open_path(const std::string& address, const Settings& settings, Explanation* taken);
// The roof of that path; null where none is known.
enum class Roof : std::uint8_t { none, copies, attach, sockets, device, fabric };
std::unique_ptr<Mover> open_roof(Roof roof, const std::string& from, const std::string& to, std::uint64_t most);

struct Row {
  std::string path;  // "shm", "tcp"
  std::string from, to;
  Operation operation = Operation::write;
  std::uint64_t size = 0, pages = 0, depth = 1, rounds = 0;
  double p50_us = 0, p99_us = 0;
  double bytes_per_second = 0;  // size / p50
  double peak_bytes_per_second = 0;
  double cpu_seconds_per_gib = 0;
  double copies_per_byte = 0, calls_per_operation = 0;
  double roof_us = 0;  // median; 0: unknown
  std::string roof;    // what it is
  Expected expected;
  std::uint64_t verified_bytes = 0;
  std::string memory;            // the kind that was forced; empty: as named
  std::string path_description;  // of the bytes, in the words of explain()
  CoreUse cores;                 // meanwhile
  std::string busy;              // why these times are the scheduler's; empty: they are not
  bool late = false;             // the median is not, but p99 is
};

struct Plan {
  std::vector<Operation> operations;
  std::vector<std::uint64_t> sizes;
  Settings settings;
  double seconds_per_row = 0.15;
};
using OnRow = std::function<Status(Row& row)>;
// Measures every operation and size on one path. `roof` may be null. Stops with cancelled on Ctrl-C. A row during which
// other work had the cores is measured once more, and tells if it had again.
Status run(const Plan& plan, const std::string& path, Mover& ours, Mover* roof, const std::string& roof_name,
           Meter& meter, const OnRow& on_row);

// Serves one or more measuring processes until standard input ends; prints its address first.
struct ServeOptions {
  std::string listen = "127.0.0.1:0";
  std::string job_key, directory;
  bool sleeping = false;
  bool once = true;  // ends with the first measuring process
  std::string memory = "shared";
  std::uint64_t most = std::uint64_t{256} << 20;
  std::vector<std::string> via;
  RdmaOptions rdma;
};
Status serve(const ServeOptions& options, const std::function<void(const std::string&)>& say);

// The last of `rows` as a line of the table, below a heading where it is of another path than the one before.
std::string table_row(const std::vector<Row>& rows);
std::string table_end(const std::vector<Row>& rows);   // what the columns mean
std::string comparison(const std::vector<Row>& rows);  // paths side by side
std::string matrix(const std::vector<Row>& rows);      // from x to, with what is expected where that is known
std::string csv(const std::vector<Row>& rows);
std::string json(const std::vector<Row>& rows, const std::string& command, bool complete);
std::string size_text(std::uint64_t bytes);
std::string rate_text(double bytes_per_second);  // GB/s

}  // namespace fairway::tool::bench

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/engine.h"
#include "fairway/gpu_collectives.h"
#include "fairway/job.h"

// Collective communication between engines, on memory of hosts and of GPUs (docs/collectives.md).
namespace fairway {

enum class DataType : std::uint8_t { i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2 };
FAIRWAY_API std::size_t size_of(DataType type);  // bytes of one element

// f16 and bf16 are combined in f32 and rounded after each step; of f8 all ranks' values are, and rounded once, the
// largest number in place of larger ones. average: the sum divided by the number of ranks; integers are rounded towards
// zero. Integer sums and products wrap around. premul_sum: the sum of each rank's input times its own
// Collective::factor; of floating-point types alone.
enum class Reduction : std::uint8_t { sum, product, min, max, average, custom, premul_sum };

// into[i] = a[i] combined with b[i]; `into` is a, b, or apart from both. At any alignment. Runs in the calls that make
// progress; it must not call the communicator.
using CombineFunction = void (*)(void* into, const void* a, const void* b, std::size_t count, void* context);
struct CustomReduction {
  CombineFunction combine = nullptr;  // associative, and commutative unless the operation is reproducible
  void* context = nullptr;
  std::size_t element_bytes = 0;  // in place of the type's; at most CommunicatorOptions::slot_bytes
};

enum class CollectiveKind : std::uint8_t {
  barrier,
  all_reduce,      // output[count] = reduction of all inputs[count]
  reduce,          // the same, at `root` only
  broadcast,       // output[count] at every rank = input[count] of `root`
  all_gather,      // output[size * count] = input[count] of each rank, in order
  gather,          // the same, at `root` only
  scatter,         // output[count] = block `rank` of input[size * count] of `root`
  reduce_scatter,  // output[count] = block `rank` of the reduction of all inputs[size * count]
  all_to_all,      // block i of output[size * count] = block `rank` of the input[size * count] of rank i
  all_to_allv,     // the same with blocks of any size: see Blocks
};

// How bytes travel. `automatic` chooses by size, number of ranks and kind of links; the others are for measurements and
// tests. Every rank names the same one. docs/collective-algorithms.md has what each costs.
enum class Algorithm : std::uint8_t {
  automatic,
  one_shot,            // all_reduce: every rank sends all it has to every other
  direct,              // every rank sends each other rank its block; all_reduce: twice
  recursive_doubling,  // all_reduce
  ring,                // all_reduce, all_gather, reduce_scatter
  binomial,            // broadcast, reduce: a tree
  chain,               // broadcast, reduce: a pipeline through all ranks
  bruck,               // all_gather, all_to_all
  dissemination,       // barrier
  hierarchical,        // all_reduce: within a host first, then between hosts
};

FAIRWAY_API std::string_view to_string(DataType type);
FAIRWAY_API std::string_view to_string(Reduction reduction);
FAIRWAY_API std::string_view to_string(CollectiveKind kind);
FAIRWAY_API std::string_view to_string(Algorithm algorithm);

// Blocks of all_to_allv, in elements: what goes to, or comes from, each rank. Each span has `size` elements.
struct Blocks {
  std::span<const std::size_t> counts = {};
  std::span<const std::size_t> offsets = {};
};

// One collective operation, as one rank calls it. Every rank of the communicator makes the same calls in the same
// order, with the same kind, count, type, reduction, root and algorithm.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  // Host memory (stream_run: of GPUs) at any alignment, borrowed until the operation has ended. They may be the same
  // memory where a rank's output lies in its input's place: input == output (all_reduce, reduce, broadcast; all_to_all
  // on all ranks or none), input == output + rank * count (all_gather; gather at the root), output == input + rank *
  // count (reduce_scatter; scatter at the root). They must not overlap otherwise. Null where the kind has none.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements, see the kinds
  DataType type = DataType::u8;
  Reduction reduction = Reduction::sum;
  int root = 0;
  Blocks send = {};     // all_to_allv; borrowed for the call that starts it
  Blocks receive = {};  // all_to_allv; send.counts[i] here equals receive.counts[rank] at rank i
  Algorithm algorithm = Algorithm::automatic;
  // For this operation; none: CommunicatorOptions::timeout. As everywhere, 0 or less has passed: the operation ends at
  // once, and with it the communicator.
  std::optional<Timeout> timeout = {};
  // The same bits for the same ranks and values, whatever the size, the algorithm and the pieces: each element is
  // combined in the order of ranks. It leaves one_shot and direct, so much data on many ranks takes longer.
  bool reproducible = false;
  CustomReduction custom = {};  // Reduction::custom; the same on every rank
  // Reduction::premul_sum, else 1: by what this rank's input is multiplied; ranks may have different ones. Products are
  // of f64 for f64, else of f32 (the factor, too), and rounded to the type. What is not in place stays as it is.
  double factor = 1;
  // broadcast, reduce, gather, scatter: ends once this rank's results are there and its memory is free, as in MPI. Who
  // does not come is then named by a later operation (docs/collectives.md). The same on every rank; others ignore it.
  bool local_completion = false;
};

using OperationId = NumberId<struct OperationOfId>;  // of a communicator, from 1, the same on every rank
using MessageId = NumberId<struct MessageOfId>;

// Why a communicator ended.
struct CollectiveFailure {
  int rank = -1;                // the rank that is at fault; -1: none alone
  std::uint64_t operation = 0;  // its number
  std::string phase;            // how far this rank, or the one that told it, had come: "step 3 of 8"
  Status status;
};

// A group of ranks, each an engine, that move and combine data together. Used by one thread at a time, but for abort().
// The engine outlives it. Its operations make progress in wait(), test() and the blocking calls.
//
// An operation ends with ok only after every rank has entered it with the same arguments. When a rank dies, freezes,
// does not come or calls something else, every other rank gets an error that names it, at the latest at the
// deadline. After an error the outputs are undefined, the communicator is over, and later calls repeat the error;
// shrink() makes a new one. An operation's failure does not end those before it: they may have ended well elsewhere.
class FAIRWAY_API Communicator {
 public:
  // Joins rank `rank` of addresses.size(). addresses[i] is the address of rank i's engine, or its name in the engine's
  // directory; the own one is not used. Returns when every rank has joined.
  // Errors: invalid_argument; those of Engine::connect() and timed_out, which name the rank.
  static Result<Communicator> create(Engine& engine, int rank, std::span<const std::string> addresses,
                                     const CommunicatorOptions& options = {});
  // The communicator of all ranks of this job, over an engine that lives as long as the last communicator made of it.
  // The environment of torchrun, mpirun (Open MPI, MPICH), srun or a Kubernetes indexed job says who they are, or RANK
  // and WORLD_SIZE do. On one host nothing need be set; on several FAIRWAY_JOB_KEY, the same for all (and for some
  // launchers MASTER_ADDR: docs/collectives.md). Errors: of detect_ranks(), Engine::open() and create();
  // already_exists, another process is this rank; timed_out, which names the ranks that are missing; cancelled.
  static Result<Communicator> join(const JobOptions& options = {});
  Communicator(Communicator&&) noexcept;  // what was moved from answers `closed` to every call
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // releases its memory; other ranks that still need this one get an error

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  // The engine that it stands on. Of join(): the pointer keeps it open, too.
  [[nodiscard]] std::shared_ptr<Engine> engine() const;
  [[nodiscard]] std::string address(int rank) const;  // as create() got it; empty: there is no such rank

  Status run(const Collective& operation);  // blocking: start() and wait()
  // A group: the same as one after the other, but neighbours that are all_reduces of one type and reduction travel as
  // one, as long as they have 64 KiB together. The first error.
  Status run_all(std::span<const Collective> group);
  // Asynchronous. Operations run one after the other, in the order of their start, which is the same on every rank.
  // Errors: invalid_argument (the message names the field), and what ended the communicator.
  Result<OperationId> start(const Collective& operation);
  bool test(OperationId operation);    // it has ended; wait() then returns at once. Makes progress, does not wait
  Status wait(OperationId operation);  // the outcome, once; after that not_found
  // Collective: times each algorithm for operations of up to so many bytes; rank 0 keeps who is the fastest, for this
  // and later communicators of this shape on this machine. `compare`: what they choose then, too. The figures as text.
  Result<std::string> measure(std::size_t most_bytes = 64 << 20, bool compare = false);

  // ---- GPU memory, among at most 8 ranks of one host whose GPUs reach each other ----
  // Collective: each rank with its GPU, as CUDA numbers them. Takes 16 MiB of its memory, and milliseconds (with NCCL
  // more of both); may wait for running kernels. unsupported, on every rank: one of them cannot, and which.
  Status use_gpu(int gpu, const GpuOptions& options = {});
  // Collective, after use_gpu(): measures operations of up to so many bytes by Fairway and NCCL in turns; rank 0 writes
  // the table for later use_gpu(). `compare`: what they choose, too. The figures as text. Errors: unsupported, no NCCL.
  Result<std::string> measure_gpu(std::size_t most_bytes = 64 << 20, bool compare = false);
  // Who would do an operation on a stream, or in a capture, and why.
  [[nodiscard]] std::string explain_stream(const Collective& operation, bool captured = false) const;
  // Shows memory of that GPU (which CUDA must be able to lend) to the other ranks, as a window: many bytes in windows
  // are read there, which is faster (docs/collectives.md), if they lie in the same window at the same offset on every
  // rank: inputs (of a broadcast the output), and of all_reduce outputs, too. Collective. The memory stays until
  // deregister_window(), also collective, once no stream and no graph uses it.
  Result<WindowId> register_window(void* memory, std::uint64_t size_bytes);
  Status deregister_window(WindowId window);
  // Enqueues an operation on a CUDA stream of that GPU (cudaStream_t, not the default one), also during capture. The
  // host does not wait. Every rank makes the same calls in the same order, on streams of the same pattern. The timeout
  // begins when the GPU does. After failures those that wait end soon, later ones at once, and the memory of any is
  // undefined. Let the streams end before the communicator does, and launch no graph after it.
  Status stream_run(const Collective& operation, void* stream);
  // The same of messages, which only their two ranks call: a group travels at once. The pair's streams meet in the
  // order of their first message, and the messages of a stream one after the other; both ranks name the same size. Of
  // a pair with more than six streams in a direction both ranks have all these messages in the same order.
  Status stream_messages(std::span<const StreamMessage> group, void* stream, std::optional<Timeout> timeout = {});
  // Ok, or how an operation on a stream has failed, as far as this rank knows: look once the stream has ended, and with
  // Progress::caller now and then before, so that kernels end soon after a rank has died.
  Status stream_status();

  // Messages between two ranks, apart from the collectives: matched by (rank, tag), in order. The memory is borrowed
  // until the message has ended. The receiver names at least the message's size; `received`, if not null, gets it.
  // truncated: the message is longer; deadline_exceeded: the timeout (none: the communicator's own), from the start on,
  // has passed.
  Status send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag = 0,
              std::optional<Timeout> timeout = {});
  Status receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag = 0, std::size_t* received = nullptr,
                 std::optional<Timeout> timeout = {});
  // The same, asynchronous: a group of messages is started, then each waited for, in any order; test() and wait() are
  // as for operations. Those that have not ended when the communicator does are taken back.
  Result<MessageId> start_send(const void* data, std::size_t size_bytes, int to, std::uint32_t tag = 0,
                               std::optional<Timeout> timeout = {});
  Result<MessageId> start_receive(void* data, std::size_t size_bytes, int from, std::uint32_t tag = 0,
                                  std::optional<Timeout> timeout = {});
  bool test(MessageId message);
  Status wait(MessageId message, std::size_t* received = nullptr);

  // Collective: ranks of the same color >= 0 form a communicator, in the order of (key, rank); others get not_found.
  Result<Communicator> split(int color, int key = 0);
  // A communicator of the ranks that still live, in the same order; all of them call it, also after an error. `without`
  // leaves out ranks that live, such as one that froze; those must not call it. Errors as create(); if another rank
  // dies meanwhile, call it again.
  Result<Communicator> shrink(std::span<const int> without = {});
  // A communicator with more ranks: these, in the same order, and behind them the engines at `added`. Collective, all
  // with the same arguments. Each of those calls create() with the same `options`, whose name nobody has used, and with
  // all addresses in that order. This communicator stays. Errors as create().
  Result<Communicator> grow(std::span<const std::string> added, const CommunicatorOptions& options);
  // Ends it at once, as if this rank had died: the other ranks get an error that names it, and their shrink() leaves it
  // out. May be called by any thread while another is inside a call, which then ends with `cancelled`, mostly within 10
  // ms; only shrink() and grow() may go on up to their timeout. Not while the communicator is moved or destroyed. What
  // was started keeps its memory until the next call, such as wait().
  void abort();
  [[nodiscard]] const CollectiveFailure& failure() const;  // why it ended; rank -1 and an ok status: it has not
  // The algorithm that an operation on host memory would use; and why.
  [[nodiscard]] Algorithm chosen(const Collective& operation) const;
  [[nodiscard]] std::string explain(const Collective& operation) const;

 private:
  struct State;
  explicit Communicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fairway

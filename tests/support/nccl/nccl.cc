#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/cuda/stream.h"

// A stand-in libnccl.so.2 for machines without GPUs: the functions that Fairway calls, among processes of this host, on
// streams of the stand-in driver (FAIRWAY_CUDA_DRIVER). It is as unforgiving as NCCL: operations wait for ever for
// ranks that do not come, and end early only by ncclCommAbort. A communicator that is used after its end ends the
// process. Sums only; 8 MiB of each rank at most. The first looks at whether a communicator is ready say no.
//
// Environment variables: FAIRWAY_STANDIN_NCCL_VERSION: what it says to be. FAIRWAY_STANDIN_NCCL_FAILS: a function, or
// "FUNCTION:RANK": that one fails with 2; "ready": no communicator ever is. FAIRWAY_STANDIN_NCCL_SPOILS, if set: the
// first and the last byte of a sum are wrong. NCCL_DEBUG, if set: it prints a line on standard output, as NCCL does.
namespace {

constexpr int kSuccess = 0, kUnhandled = 2, kInvalid = 4, kInProgress = 7;
constexpr int kRanks = 8;
constexpr std::size_t kRoom = 8U << 20;
constexpr std::size_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

struct Board {  // shared by the ranks
  std::atomic<std::uint64_t> arrived[kRanks];
  unsigned char data[kRanks][kRoom];
};

// What tests ask for, in one process.
std::atomic<long> dies_in{-1};  // counts down with operations; at 0 the process is killed inside
std::atomic<bool> stalls{false};
std::atomic<int> hold_ms{0};  // the next look for errors stays inside for so long
std::atomic<long> held{0};    // and has returned
std::atomic<long> operations{0}, aborted{0}, destroyed{0};

using Copy = int (*)(unsigned long long to, unsigned long long from, std::size_t bytes);
void* driver() {
  static void* const opened = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  return opened;
}
template <class F>
F entry(const char* name) {
  return reinterpret_cast<F>(::dlsym(driver(), name));
}

struct Part {  // of a group: what goes to a rank, or comes from it
  bool sends;
  const void* from;
  void* to;
  std::size_t bytes;
  int peer;
};

struct Group {
  int ranks = 0, rank = 0;
  Board* board = nullptr;
  std::string file;
  std::atomic<bool> aborts{false}, over{false};
  std::atomic<int> not_yet{2};
};

using Comm = std::shared_ptr<Group>*;
struct Id {
  char name[128];
};
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};

thread_local int groups = 0;
thread_local std::vector<Part> parts;
thread_local Comm group_comm = nullptr;
thread_local standin::Stream* group_stream = nullptr;

bool fails(const char* function, int rank) {
  const char* const set = std::getenv("FAIRWAY_STANDIN_NCCL_FAILS");
  return set != nullptr && (std::string(set) == function || set == std::string(function) + ":" + std::to_string(rank));
}

// The communicator behind a handle. Use after its end is an error of the program that is tested.
Group& of(Comm comm) {
  if ((*comm)->over) {
    std::fputs("the stand-in NCCL: a communicator is used after its end\n", stderr);
    std::abort();
  }
  return **comm;
}

// False: it was aborted.
bool meet(Group& comm) {
  const std::uint64_t mine = ++comm.board->arrived[comm.rank];
  for (int other = 0; other < comm.ranks; ++other)
    while (comm.board->arrived[other].load() < mine) {
      if (comm.aborts) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  return true;
}

bool copy(void* to, const void* from, std::size_t bytes, int device) {
  static const auto retain = entry<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  static const auto push = entry<int (*)(void*)>("cuCtxPushCurrent_v2");
  static const auto pop = entry<int (*)(void**)>("cuCtxPopCurrent_v2");
  static const auto move = entry<Copy>("cuMemcpy");
  void* context = nullptr;
  retain(&context, device);
  push(context);
  const int code =
      bytes == 0 ? 0
                 : move(reinterpret_cast<unsigned long long>(to), reinterpret_cast<unsigned long long>(from), bytes);
  pop(&context);
  return code == 0;
}

template <class T>
void add(unsigned char* into, const unsigned char* more, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof a);
    std::memcpy(&b, more + i * sizeof(T), sizeof b);
    a = static_cast<T>(a + b);
    std::memcpy(into + i * sizeof(T), &a, sizeof a);
  }
}
bool sum(int type, unsigned char* into, const unsigned char* more, std::size_t count) {
  switch (type) {
    case 0:
    case 1: add<std::uint8_t>(into, more, count); return true;
    case 2:
    case 3: add<std::uint32_t>(into, more, count); return true;
    case 4:
    case 5: add<std::uint64_t>(into, more, count); return true;
    case 7: add<float>(into, more, count); return true;
    case 8: add<double>(into, more, count); return true;
    default: return false;
  }
}

// One operation on the stream's thread: give() puts this rank's bytes on the board, take() reads all of it.
template <class Give, class Take>
int post(Comm handle, void* on, Give give, Take take) {
  Group& now = of(handle);
  if (now.aborts) return kInvalid;
  ++operations;
  auto& stream = *static_cast<standin::Stream*>(on);
  stream.post([comm = *handle, give, take, device = stream.device()] {
    if (comm->aborts) return true;
    if (!give(*comm, device)) return false;
    if (dies_in >= 0 && dies_in-- == 0) ::kill(::getpid(), SIGKILL);
    while (stalls && !comm->aborts) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (!meet(*comm)) return true;
    if (!take(*comm, device)) return false;
    (void)meet(*comm);  // nobody reads this rank's bytes any more
    return true;
  });
  return kSuccess;
}

int reduce(const char* name, const void* input, void* output, std::size_t count, int type, int reduction, Comm comm,
           void* stream, bool scatter, int root = -1) {
  if (fails(name, of(comm).rank)) return kUnhandled;
  const std::size_t width = kTypeBytes[type], blocks = scatter ? static_cast<std::size_t>(of(comm).ranks) : 1;
  if (reduction != 0 || count * width * blocks > kRoom) return kInvalid;
  return post(
      comm, stream,
      [=](Group& one, int device) { return copy(one.board->data[one.rank], input, count * blocks * width, device); },
      [=](Group& one, int device) {
        if (root >= 0 && one.rank != root) return true;
        const std::size_t at = scatter ? static_cast<std::size_t>(one.rank) * count * width : 0;
        std::vector<unsigned char> all(one.board->data[0] + at, one.board->data[0] + at + count * width);
        for (int other = 1; other < one.ranks; ++other)
          if (!sum(type, all.data(), one.board->data[other] + at, count)) return false;
        if (std::getenv("FAIRWAY_STANDIN_NCCL_SPOILS") != nullptr) all.front() ^= 1, all.back() ^= 1;
        return copy(output, all.data(), all.size(), device);
      });
}

Board* board_of(const Id& id) {
  const int file = ::open(id.name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Board)) != 0) return nullptr;
  void* const place = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return place == MAP_FAILED ? nullptr : static_cast<Board*>(place);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// For tests.
void fairway_standin_nccl_die_in(long operation) {
  dies_in = operation;
}
void fairway_standin_nccl_stall(bool on) {
  stalls = on;
}
long fairway_standin_nccl_operations() {
  return operations;
}
void fairway_standin_nccl_hold(int milliseconds) {
  hold_ms = milliseconds;
}
int fairway_standin_nccl_holds() {  // 0: it is inside, or has been
  return hold_ms;
}
long fairway_standin_nccl_held() {
  return held;
}
long fairway_standin_nccl_aborted() {
  return aborted;
}
long fairway_standin_nccl_destroyed() {
  return destroyed;
}

int ncclGetVersion(int* version) {
  const char* const set = std::getenv("FAIRWAY_STANDIN_NCCL_VERSION");
  *version = set != nullptr ? std::atoi(set) : 22809;
  return kSuccess;
}
const char* ncclGetErrorString(int code) {
  return code == kUnhandled ? "unhandled system error" : code == kInvalid ? "invalid argument" : "something";
}
int ncclGetUniqueId(Id* id) {
  static std::atomic<int> made{0};
  if (fails("ncclGetUniqueId", 0)) return kUnhandled;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->name, sizeof id->name, "/dev/shm/fairway-standin-nccl-%d-%d", ::getpid(), ++made);
  return kSuccess;
}
int ncclCommInitRankConfig(Comm* comm, int ranks, Id id, int rank, const Config* config) {
  if (config->magic != 0xcafebeef || ranks > kRanks) return kInvalid;
  if (fails("ncclCommInitRankConfig", rank)) return kUnhandled;
  if (std::getenv("NCCL_DEBUG") != nullptr) std::printf("NCCL INFO rank %d\n", rank), std::fflush(stdout);
  auto made = std::make_shared<Group>();
  made->ranks = ranks;
  made->rank = rank;
  made->board = board_of(id);
  if (made->board == nullptr) return kUnhandled;
  *comm = new std::shared_ptr<Group>(made);  // never freed: of() looks at it
  made->file = id.name;
  ++made->board->arrived[rank];
  if (config->blocking == 0) return kInProgress;
  for (int other = 0; other < ranks; ++other)
    while (made->board->arrived[other] == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  ::unlink(id.name);
  made->not_yet = 0;
  return kSuccess;
}
int ncclCommGetAsyncError(Comm comm, int* state) {
  if (const int stays = hold_ms.exchange(0); stays > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(stays));
    ++held;
  }
  Group& one = of(comm);
  bool all = true;
  for (int other = 0; other < one.ranks; ++other) all = all && one.board->arrived[other] > 0;
  if (all) ::unlink(one.file.c_str());
  *state = !all || (one.not_yet > 0 && one.not_yet-- > 0) ? kInProgress : kSuccess;
  if (fails("ready", one.rank)) *state = kInProgress;
  if (fails("ncclCommGetAsyncError", one.rank) && operations > 17) *state = kUnhandled;
  return kSuccess;
}
int ncclCommFinalize(Comm comm) {
  of(comm).not_yet = 1;
  return kInProgress;
}
int ncclCommDestroy(Comm comm) {
  of(comm).over = true;
  ++destroyed;
  return kSuccess;
}
int ncclCommAbort(Comm comm) {
  of(comm).aborts = true;
  ::unlink(of(comm).file.c_str());
  of(comm).over = true;
  ++aborted;
  return kSuccess;
}

int ncclAllReduce(const void* input, void* output, std::size_t count, int type, int reduction, Comm comm,
                  void* stream) {
  return reduce("ncclAllReduce", input, output, count, type, reduction, comm, stream, false);
}
int ncclReduce(const void* input, void* output, std::size_t count, int type, int reduction, int root, Comm comm,
               void* stream) {
  return reduce("ncclReduce", input, output, count, type, reduction, comm, stream, false, root);
}
int ncclReduceScatter(const void* input, void* output, std::size_t count, int type, int reduction, Comm comm,
                      void* stream) {
  return reduce("ncclReduceScatter", input, output, count, type, reduction, comm, stream, true);
}
int ncclAllGather(const void* input, void* output, std::size_t count, int type, Comm comm, void* stream) {
  if (fails("ncclAllGather", of(comm).rank)) return kUnhandled;
  const std::size_t bytes = count * kTypeBytes[type];
  if (bytes > kRoom) return kInvalid;
  return post(
      comm, stream, [=](Group& one, int device) { return copy(one.board->data[one.rank], input, bytes, device); },
      [=](Group& one, int device) {
        for (int other = 0; other < one.ranks; ++other)
          if (!copy(static_cast<unsigned char*>(output) + static_cast<std::size_t>(other) * bytes,
                    one.board->data[other], bytes, device))
            return false;
        return true;
      });
}
int ncclBroadcast(const void* input, void* output, std::size_t count, int type, int root, Comm comm, void* stream) {
  if (fails("ncclBroadcast", of(comm).rank)) return kUnhandled;
  const std::size_t bytes = count * kTypeBytes[type];
  if (bytes > kRoom) return kInvalid;
  return post(
      comm, stream,
      [=](Group& one, int device) { return one.rank != root || copy(one.board->data[root], input, bytes, device); },
      [=](Group& one, int device) { return copy(output, one.board->data[root], bytes, device); });
}
int ncclSend(const void* input, std::size_t count, int type, int peer, Comm comm, void* stream) {
  if (groups == 0) return kInvalid;
  group_comm = comm;
  group_stream = static_cast<standin::Stream*>(stream);
  parts.push_back({true, input, nullptr, count * kTypeBytes[type], peer});
  return kSuccess;
}
int ncclRecv(void* output, std::size_t count, int type, int peer, Comm comm, void* stream) {
  if (groups == 0) return kInvalid;
  group_comm = comm;
  group_stream = static_cast<standin::Stream*>(stream);
  parts.push_back({false, nullptr, output, count * kTypeBytes[type], peer});
  return kSuccess;
}
int ncclGroupStart() {
  ++groups;
  return kSuccess;
}
int ncclGroupEnd() {
  if (groups == 0) return kInvalid;
  if (--groups > 0 || parts.empty()) return kSuccess;
  const std::vector<Part> all = std::exchange(parts, {});
  if (fails("ncclGroupEnd", of(group_comm).rank)) return kUnhandled;
  // Each rank's part of the board is cut by who gets it.
  const std::size_t room = kRoom / static_cast<std::size_t>(of(group_comm).ranks);
  for (const Part& part : all)
    if (part.bytes > room) return kInvalid;
  return post(
      group_comm, group_stream,
      [all, room](Group& one, int device) {
        for (const Part& part : all)
          if (part.sends && !copy(one.board->data[one.rank] + static_cast<std::size_t>(part.peer) * room, part.from,
                                  part.bytes, device))
            return false;
        return true;
      },
      [all, room](Group& one, int device) {
        for (const Part& part : all)
          if (!part.sends && !copy(part.to, one.board->data[part.peer] + static_cast<std::size_t>(one.rank) * room,
                                   part.bytes, device))
            return false;
        return true;
      });
}
}
#pragma GCC visibility pop

#pragma once

// The programs that measure rivals: each is written to a scratch folder and run there. Arguments: operation, type,
// reduction, ranks, seconds of each row, bytes of each row. Output: a line "BYTES MICROSECONDS" for each row: the time
// of a round at the slowest rank. Gloo's ranks enter the network namespaces in RIVAL_NAMESPACES, if it is set.
namespace fairway::tool::bench {

inline constexpr const char* kGlooProgram = R"py(
import ctypes, os, sys, tempfile, time
import torch
import torch.distributed as dist

kind, dtype, op, n, seconds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
sizes = [int(word) for word in sys.argv[6:]]
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
TYPE = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
        "f32": torch.float32, "f64": torch.float64}[dtype]
OP = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "product": dist.ReduceOp.PRODUCT}.get(op)


def call_of(size, rank):
    width = torch.tensor([], dtype=TYPE).element_size()
    blocks = n if kind in ("all_gather", "gather", "scatter", "all_to_all") else 1
    count = max(1, size // width // blocks)
    own, whole = torch.ones(count, dtype=TYPE), torch.ones(count * blocks, dtype=TYPE)
    parts = list(whole.chunk(n)) if blocks > 1 and count else []
    other = torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(own, OP),
        "reduce": lambda: dist.reduce(own, 0, OP),
        "broadcast": lambda: dist.broadcast(own, 0),
        "all_gather": lambda: dist.all_gather(parts, own),
        "gather": lambda: dist.gather(own, parts if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(own, parts if rank == 0 else None, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "barrier": lambda: dist.barrier(),
    }[kind]


def measure(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=n)
    for size in sizes:
        call = call_of(size, rank)
        for _ in range(3):
            call()
        start = time.perf_counter()
        call()
        rounds = torch.tensor([max(3, min(20000, int(seconds / max(time.perf_counter() - start, 1e-7))))])
        dist.broadcast(rounds, 0)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(int(rounds)):
            call()
        took = torch.tensor([(time.perf_counter() - start) / int(rounds) * 1e6], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        if rank == 0:
            print(size, float(took), flush=True)


def enter(path):
    """The network namespace that this file is of."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as file:
        if libc.setns(file.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns " + path)


namespaces = os.environ.get("RIVAL_NAMESPACES", "").split(":") if os.environ.get("RIVAL_NAMESPACES") else []
with tempfile.TemporaryDirectory() as folder:
    children = []
    for rank in range(n):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if namespaces:
                    enter(namespaces[rank])
                measure(rank, folder + "/store")
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
sys.exit(1 if any(codes) else 0)
)py";

inline constexpr const char* kMpiProgram = R"c(
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n, rank;
static MPI_Datatype type = MPI_FLOAT;
static MPI_Op op = MPI_SUM;
static char *in, *out;
static const char* kind;

static void call(int count) {
  if (!strcmp(kind, "all_reduce")) MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
  else if (!strcmp(kind, "reduce")) MPI_Reduce(in, out, count, type, op, 0, MPI_COMM_WORLD);
  else if (!strcmp(kind, "broadcast")) MPI_Bcast(in, count, type, 0, MPI_COMM_WORLD);
  else if (!strcmp(kind, "all_gather")) MPI_Allgather(in, count, type, out, count, type, MPI_COMM_WORLD);
  else if (!strcmp(kind, "gather")) MPI_Gather(in, count, type, out, count, type, 0, MPI_COMM_WORLD);
  else if (!strcmp(kind, "scatter")) MPI_Scatter(in, count, type, out, count, type, 0, MPI_COMM_WORLD);
  else if (!strcmp(kind, "reduce_scatter")) MPI_Reduce_scatter_block(in, out, count, type, op, MPI_COMM_WORLD);
  else if (!strcmp(kind, "all_to_all")) MPI_Alltoall(in, count, type, out, count, type, MPI_COMM_WORLD);
  else MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  kind = argv[1];
  int width = 4;
  const char* name = argv[2];
  if (!strcmp(name, "i8")) type = MPI_INT8_T, width = 1;
  else if (!strcmp(name, "u8")) type = MPI_UINT8_T, width = 1;
  else if (!strcmp(name, "i16")) type = MPI_INT16_T, width = 2;
  else if (!strcmp(name, "u16")) type = MPI_UINT16_T, width = 2;
  else if (!strcmp(name, "i32")) type = MPI_INT32_T;
  else if (!strcmp(name, "u32")) type = MPI_UINT32_T;
  else if (!strcmp(name, "i64")) type = MPI_INT64_T, width = 8;
  else if (!strcmp(name, "u64")) type = MPI_UINT64_T, width = 8;
  else if (!strcmp(name, "f64")) type = MPI_DOUBLE, width = 8;
  if (!strcmp(argv[3], "min")) op = MPI_MIN;
  if (!strcmp(argv[3], "max")) op = MPI_MAX;
  if (!strcmp(argv[3], "product")) op = MPI_PROD;
  const double seconds = atof(argv[5]);
  const int many = !strcmp(kind, "all_gather") || !strcmp(kind, "gather") || !strcmp(kind, "scatter") ||
                   !strcmp(kind, "reduce_scatter") || !strcmp(kind, "all_to_all");
  for (int i = 6; i < argc; ++i) {
    const long bytes = atol(argv[i]);
    const int fits = (int)(bytes / width / (many ? n : 1)), count = fits > 0 ? fits : 1;
    in = calloc(bytes + (long)n * width, 1);
    out = calloc(bytes + (long)n * width, 1);
    memset(in, 1, bytes + (long)n * width);  /* what was never written is one page, that every cache keeps */
    for (int k = 0; k < 3; ++k) call(count);
    double start = MPI_Wtime();
    call(count);
    double one = MPI_Wtime() - start;
    double wish = seconds / (one > 1e-7 ? one : 1e-7);
    int rounds = wish > 20000 ? 20000 : wish < 3 ? 3 : (int)wish;
    MPI_Bcast(&rounds, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int k = 0; k < rounds; ++k) call(count);
    double took = (MPI_Wtime() - start) / rounds * 1e6, slowest = took;
    MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld %.4f\n", bytes, slowest), fflush(stdout);
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
)c";

}  // namespace fairway::tool::bench

// The sum over all ranks of a job, however it is started: mpirun -n 4 ./job (Open MPI: mpirun --oversubscribe where
// there are fewer cores than ranks, else it refuses by itself), srun -n 4 ./job, torchrun, or by hand: for r in 0 1 2
// 3; do RANK=$r WORLD_SIZE=4 ./job & done; wait. On several hosts set FAIRWAY_JOB_KEY to one secret.
#include <fairway/collectives.h>

#include "need.h"

int main(int argc, char** argv) {
  arguments(argc, argv, 0, "");
  fairway::Communicator world = need(fairway::Communicator::join());
  double sum = world.rank();
  need(world.run({fairway::CollectiveKind::all_reduce, &sum, &sum, 1, fairway::DataType::f64}));

  std::printf("rank %d of %d: the sum is %g\n", world.rank(), world.size(), sum);
}

/* Three ranks add up vectors together, one leaves, and the others go on. Ranks are threads here so that the example is
 * one program of plain C11; in a job each is a process, and fairway_exchange_addresses finds the others.
 * Elsewhere: cc -std=c11 sum.c $(pkg-config --cflags --libs fairway) */
#include <stdio.h>
#include <threads.h>

#include "fairway_collectives.h"

enum { RANKS = 3, COUNT = 1000 };

static fairway_engine* engines[RANKS];
static const char* addresses[RANKS];

static int failed(fairway_error* error, const char* what) {
  if (error == NULL) return 0;
  fprintf(stderr, "%s: %s\n", what, fairway_error_text(error));
  fairway_error_free(error);
  return 1;
}

/* A reduction of one's own: the longest vector of two numbers. */
static void longer(void* into, const void* a, const void* b, size_t count, void* context) {
  const float *left = a, *right = b;
  float* out = into;
  (void)context;
  for (size_t i = 0; i < 2 * count; i += 2) {
    const float x = left[i] * left[i] + left[i + 1] * left[i + 1],
                y = right[i] * right[i] + right[i + 1] * right[i + 1];
    const float first = x >= y ? left[i] : right[i], second = x >= y ? left[i + 1] : right[i + 1];
    out[i] = first;
    out[i + 1] = second;
  }
}

static int add_up(fairway_communicator* group, float* values, float expected) {
  fairway_error* error = NULL;
  fairway_collective sum;
  fairway_collective_init(&sum);
  sum.kind = FAIRWAY_ALL_REDUCE;
  sum.type = FAIRWAY_F32;
  sum.input = sum.output = values;
  sum.count = COUNT;
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(fairway_communicator_rank(group) + 1);
  fairway_communicator_run(group, &sum, &error);
  if (failed(error, "all_reduce")) return 1;
  return values[COUNT - 1] == expected ? 0 : 1;
}

static int be_rank(void* number) {
  const int rank = *(const int*)number;
  fairway_error* error = NULL;
  fairway_communicator *group = NULL, *rest = NULL;
  float values[COUNT], pair[2] = {(float)rank, 1.0F};
  int result = 1;

  fairway_communicator_create(engines[rank], rank, addresses, RANKS, NULL, &group, &error);
  if (failed(error, "join")) goto out;
  if (add_up(group, values, 1 + 2 + 3) != 0) goto out;
  if (rank == 0) printf("%d ranks: every sum is %.0f\n", RANKS, (double)values[0]);

  fairway_collective longest;
  fairway_collective_init(&longest);
  longest.kind = FAIRWAY_ALL_REDUCE;
  longest.reduction = FAIRWAY_CUSTOM;
  longest.combine = longer;
  longest.element_bytes = sizeof pair;
  longest.input = longest.output = pair;
  longest.count = 1;
  uint64_t operation = 0;
  fairway_communicator_start(group, &longest, &operation, &error);
  if (failed(error, "start")) goto out;
  while (!fairway_communicator_test(group, operation)) thrd_yield(); /* other work goes here */
  fairway_communicator_wait(group, operation, &error);
  if (failed(error, "the longest vector")) goto out;
  if (rank == 0) printf("the longest vector is (%.0f, %.0f)\n", (double)pair[0], (double)pair[1]);

  if (rank == RANKS - 1) { /* leaves: the others are told */
    result = 0;
    goto out;
  }
  fairway_collective barrier;
  fairway_collective_init(&barrier);
  if (fairway_communicator_run(group, &barrier, NULL) == 0) goto out; /* without rank 2 it cannot end well */
  fairway_failure* failure = fairway_communicator_failure(group);
  if (failure == NULL) goto out;
  if (rank == 0) printf("rank %d is missed: %s\n", failure->rank, failure->text);
  fairway_failure_free(failure);
  fairway_communicator_shrink(group, NULL, 0, &rest, &error);
  if (failed(error, "shrink") || add_up(rest, values, 1 + 2) != 0) goto out;
  if (rank == 0) printf("%d ranks go on: every sum is %.0f\n", fairway_communicator_size(rest), (double)values[0]);
  result = 0;
out:
  fairway_communicator_free(rest);
  fairway_communicator_free(group);
  return result;
}

int main(int argc, char** argv) {
  if (argc > 1) return fprintf(stderr, "usage: %s\n", argv[0]), 2;
  fairway_options options;
  fairway_options_init(&options);
  options.loopback = fairway_loopback_make();
  thrd_t threads[RANKS];
  int ranks[RANKS], result = 0;
  fairway_error* error = NULL;
  for (int i = 0; i < RANKS; ++i) {
    fairway_open(&options, &engines[i], &error);
    if (failed(error, "open")) return 1;
    addresses[i] = fairway_address(engines[i]);
    ranks[i] = i;
  }
  for (int i = 0; i < RANKS; ++i)
    if (thrd_create(&threads[i], be_rank, &ranks[i]) != thrd_success) return 1;
  for (int i = 0; i < RANKS; ++i) {
    int one = 1;
    thrd_join(threads[i], &one);
    result |= one;
  }
  for (int i = 0; i < RANKS; ++i) fairway_engine_free(engines[i]);
  fairway_loopback_free(options.loopback);
  return result;
}

#include "sys/library_loading.h"

#include <pthread.h>

namespace fairway::sys {
namespace {

// Not std::mutex: it is unlocked in the child of a fork, by the thread that is a copy of the one that locked it.
pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
thread_local int depth = 0;

// A fork by the thread that loads, as from a library's constructor, does not wait for itself.
void before_fork() {
  if (depth == 0) ::pthread_mutex_lock(&loading);
}
void after_fork() {
  if (depth == 0) ::pthread_mutex_unlock(&loading);
}

// As the program starts, before any thread can fork: a child of a fork during the first use of a local static would
// wait for its initialisation for ever, and a fork before it would not wait for a load that began meanwhile.
[[maybe_unused]] const int registered = ::pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

LibraryLoading::LibraryLoading() {
  if (depth++ == 0) ::pthread_mutex_lock(&loading);
}

LibraryLoading::~LibraryLoading() {
  if (--depth == 0) ::pthread_mutex_unlock(&loading);
}

}  // namespace fairway::sys

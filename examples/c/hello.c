/* The shortest program in C: two engines of one process; one writes into the other's memory and the other is told.
 * Elsewhere: cc -std=c11 hello.c $(pkg-config --cflags --libs fairway) */
#include <stdio.h>
#include <string.h>

#include "fairway.h"

static int failed(fairway_error* error, const char* what) {
  if (error == NULL) return 0;
  fprintf(stderr, "%s: %s\n", what, fairway_error_text(error));
  fairway_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  if (argc > 1) return fprintf(stderr, "usage: %s\n", argv[0]), 2;
  fairway_options options;
  fairway_options_init(&options);
  options.loopback = fairway_loopback_make();

  fairway_error* error = NULL;
  fairway_engine *alice = NULL, *bob = NULL;
  fairway_region draft = {.struct_size = sizeof draft}, inbox = {.struct_size = sizeof inbox};
  fairway_remote_region remote = {.struct_size = sizeof remote};
  fairway_peer peer;
  int result = 1;

  fairway_open(&options, &alice, &error);
  if (failed(error, "open alice")) goto out;
  fairway_open(&options, &bob, &error);
  if (failed(error, "open bob")) goto out;
  fairway_allocate(bob, 4096, FAIRWAY_ACCESS_WRITE, &inbox, &error);
  if (failed(error, "allocate the inbox")) goto out;
  fairway_allocate(alice, 4096, FAIRWAY_ACCESS_NONE, &draft, &error);
  if (failed(error, "allocate the draft")) goto out;
  fairway_publish(bob, "inbox", inbox.id, &error);
  if (failed(error, "publish")) goto out;
  strcpy(draft.address, "hello, bob");

  fairway_connect(alice, fairway_address(bob), 5000000, &peer, &error);
  if (failed(error, "connect")) goto out;
  fairway_lookup(alice, peer, "inbox", 5000000, &remote, &error);
  if (failed(error, "lookup")) goto out;

  fairway_request write;
  fairway_request_init(&write); /* a write of one extent */
  write.peer = peer;
  write.extent.local = (fairway_slice){draft.id, 0, 4096};
  write.extent.remote.region = remote.id;
  write.notify = FAIRWAY_NOTIFY_EVENT;
  write.immediate = 7;
  fairway_transfer transfer;
  size_t taken = 0;
  fairway_submit(alice, &write, 1, &transfer, &taken, &error);
  if (failed(error, "write")) goto out;
  fairway_completion done = {.error = NULL};
  fairway_wait(alice, transfer, -1, &done, &error);
  if (failed(error, "wait") || failed(done.error, "the write")) goto out;

  fairway_notification note;
  fairway_wait_notification(bob, 1000000, &error);
  if (failed(error, "wait for the notification")) goto out;
  if (fairway_poll_notifications(bob, &note, 1) != 1) goto out;
  printf("bob was told %u and reads: %s\n", note.immediate, (const char*)inbox.address);
  result = 0;
out:
  fairway_engine_free(alice);
  fairway_engine_free(bob);
  fairway_loopback_free(options.loopback);
  return result;
}

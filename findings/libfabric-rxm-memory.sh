#!/usr/bin/env bash
# An endpoint of libfabric's tcp;ofi_rxm takes 70 MB before it has a peer.
#
# Version: libfabric1 and libfabric-dev 1.17.0-3 (Debian 12), gcc 12.
# Expected: what an endpoint takes is of the size of its queues (2,048 entries each way) and of its peers: some hundreds of KiB
#   at first, as with `sockets`. fi_endpoint(3) and fi_rxm(7) name no such cost.
# Seen: 69.8 MB of memory that is written to, each, when it is enabled: 64 of them are 4.5 GB in a process that has sent nothing.
#   tcp;ofi_rxm: 69752 KiB for the second endpoint, queues of 2048 and 2048
#   sockets: 136 KiB for the second endpoint, queues of 256 and 256
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
debian libfabric1=1.17.0-3 libfabric-dev=1.17.0-3
cat >memory.c <<'C'
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdio.h>
#include <string.h>

static long written_kib(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long value = 0;
  while (fgets(line, sizeof line, file) != NULL) sscanf(line, "RssAnon: %ld", &value);
  fclose(file);
  return value;
}

// KiB that the second of two endpoints takes: the first may also pay for what the process has once.
static long look(const char* name) {
  struct fi_info *hints = fi_allocinfo(), *info = NULL;
  hints->fabric_attr->prov_name = strdup(name);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_cq* queue;
  struct fid_av* peers;
  struct fi_cq_attr of_queue = {.format = FI_CQ_FORMAT_CONTEXT, .size = 16};
  struct fi_av_attr of_peers = {.type = FI_AV_TABLE, .count = 2};
  if (fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info) != 0 || fi_fabric(info->fabric_attr, &fabric, NULL) != 0 ||
      fi_domain(fabric, info, &domain, NULL) != 0 || fi_cq_open(domain, &of_queue, &queue, NULL) != 0 ||
      fi_av_open(domain, &of_peers, &peers, NULL) != 0)
    return -1;
  long taken = 0;
  for (int i = 0; i < 2; ++i) {
    const long before = written_kib();
    struct fid_ep* endpoint;
    if (fi_endpoint(domain, info, &endpoint, NULL) != 0 || fi_ep_bind(endpoint, &peers->fid, 0) != 0 ||
        fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) != 0 || fi_enable(endpoint) != 0)
      return -1;
    taken = written_kib() - before;
  }
  printf("%s: %ld KiB for the second endpoint, queues of %zu and %zu\n", name, taken, info->tx_attr->size, info->rx_attr->size);
  return taken;
}

int main(void) {
  const long rxm = look("tcp;ofi_rxm"), sockets = look("sockets");
  return rxm > 50000 && rxm < 90000 && sockets >= 0 && sockets < 2000 ? 0 : 1;
}
C
link_libfabric memory.c
timeout 60 ./program

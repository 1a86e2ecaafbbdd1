#!/usr/bin/env bash
# libfabric's udp;ofi_rxd takes FI_WAIT_FD for a completion queue, and then has no descriptor for it.
#
# Version: libfabric1 and libfabric-dev 1.17.0-3 (Debian 12), gcc 12.
# Expected: fi_cq(3): with FI_WAIT_FD "the CQ is associated with a file descriptor", which fi_control(FI_GETWAIT) gives; a
#   provider without one refuses to open the queue, as it says of wait objects that it does not support.
# Seen: fi_cq_open returns 0 and FI_GETWAIT says ENOSYS. A program that sleeps in poll() learns only then that it must look by
#   itself. udp alone (datagrams), tcp;ofi_rxm and sockets give one.
#   udp: queue opened with FI_WAIT_FD, FI_GETWAIT: a descriptor
#   udp;ofi_rxd: queue opened with FI_WAIT_FD, FI_GETWAIT: Function not implemented
#   tcp;ofi_rxm: queue opened with FI_WAIT_FD, FI_GETWAIT: a descriptor
#   sockets: queue opened with FI_WAIT_FD, FI_GETWAIT: a descriptor
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
temp_folder
debian libfabric1=1.17.0-3 libfabric-dev=1.17.0-3
cat >wait.c <<'C'
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

static int look(const char* name, enum fi_ep_type type) {
  struct fi_info *hints = fi_allocinfo(), *info = NULL;
  hints->fabric_attr->prov_name = strdup(name);
  hints->ep_attr->type = type;
  hints->caps = FI_MSG;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_cq* queue;
  struct fi_cq_attr how = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD, .size = 16};
  if (fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info) != 0 || fi_fabric(info->fabric_attr, &fabric, NULL) != 0 ||
      fi_domain(fabric, info, &domain, NULL) != 0) {
    printf("%s: not here\n", name);
    return -1;
  }
  const int opened = fi_cq_open(domain, &how, &queue, NULL);
  if (opened != 0) {
    printf("%s: no queue with FI_WAIT_FD: %s\n", name, fi_strerror(-opened));
    return -1;
  }
  int descriptor = -1;
  const int got = fi_control(&queue->fid, FI_GETWAIT, &descriptor);
  printf("%s: queue opened with FI_WAIT_FD, FI_GETWAIT: %s\n", name, got == 0 ? "a descriptor" : fi_strerror(-got));
  return got;
}

int main(void) {
  const int udp = look("udp", FI_EP_DGRAM), rxd = look("udp;ofi_rxd", FI_EP_RDM);
  const int rxm = look("tcp;ofi_rxm", FI_EP_RDM), sockets = look("sockets", FI_EP_RDM);
  return udp == 0 && rxd == -FI_ENOSYS && rxm == 0 && sockets == 0 ? 0 : 1;
}
C
link_libfabric wait.c
timeout 60 ./program

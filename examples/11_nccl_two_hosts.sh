#!/usr/bin/env bash
# What NCCL over Fairway needs on two hosts, tried before any job is started: two network namespaces stand in for the hosts. Needs
# `fairway` with the plugin on the PATH, and iproute2. docs/tutorial/11-nccl-two-hosts.md explains each step.
set -euo pipefail
if [[ -z ${TWO_HOSTS:-} ]]; then TWO_HOSTS=1 exec unshare --map-root-user --net --fork --kill-child "$0" "$@"; fi
work=$(mktemp -d)
started=()
trap 'kill "${started[@]}"; rm -rf "$work"' EXIT
cd "$work"

# The hosts and the cable between them. This one has 10.77.1.1, the other one 10.77.1.2.
unshare --net sleep 600 &
other=$!
started+=("$other")
until net=$(readlink "/proc/$other/ns/net") && [[ $net != "$(readlink /proc/$$/ns/net)" ]]; do sleep 0.01; done
ip link add cable type veth peer name cable netns "$other"
on() {
  local host=$1
  shift
  if [[ $host == one ]]; then "$@"; else nsenter --net="/proc/$other/ns/net" "$@"; fi
}
on one ip address add 10.77.1.1/24 dev cable
on two ip address add 10.77.1.2/24 dev cable
for host in one two; do
  on $host ip link set lo up
  on $host ip link set cable up
done

run() {
  local host=$1 words
  shift
  words=$*
  printf '\n%s$ %s\n' "$host" "${words//"$key"/KEY}"
  on "$host" "$@" 2>&1 || echo "(exit status $?)"
}
on one fairway nccl env --key-file job.key >/dev/null  # makes the key
key=$(cat job.key)

nsenter --net="/proc/$other/ns/net" fairway bench --listen 10.77.1.2:4000 --key "$key" >/dev/null 2>&1 &
started+=("$!")
until on one fairway ping 10.77.1.2:4000 --key "$key" --count 1 >/dev/null 2>&1; do
  kill -0 "${started[1]}"  # it has not ended
  sleep 0.1
done
run one fairway ping 10.77.1.2:4000 --key "$key" --count 100
run one fairway bench 10.77.1.2:4000 --key "$key" --operation write --size 1M --seconds 0.1
run one fairway ping 10.77.1.2:4000 --key another

# What each host sets before its ranks start: the key of all. Each finds its own address by the rank that all know.
run one env MASTER_ADDR=10.77.1.1 fairway nccl env --key-file job.key
run two env MASTER_ADDR=10.77.1.1 fairway nccl env --key-file job.key
run one env NCCL_SOCKET_IFNAME=wlan0 fairway nccl env --key-file job.key

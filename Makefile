# The few verbs of daily work; each calls what a person could type. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-sanitized test-long aarch64 bench rdma-lab packages dist reference lint clean

help:
	@echo 'make demo     build what users install and show it moving bytes'
	@echo 'make test     build once and test: every label, 5,000 simulated seeds, one guest, the demo, the format; 12 minutes on two cores'
	@echo '                LABEL=unit      only tests of this label, and only what they need is built'
	@echo '                                (unit conformance process fault model net rdma_vm gpu repository; iwarp: optional)'
	@echo '                MATCH=Stripe    only cases whose names match this regular expression'
	@echo "                STAGE='asan'    these stages instead; a wrong name shows them all"
	@echo 'make test-sanitized  AddressSanitizer and UndefinedBehaviorSanitizer, then ThreadSanitizer on what has threads'
	@echo 'make test-long       everything that takes long, before an issue is called resolved: 100,000 seeds, every guest, fuzzing,'
	@echo '                     every program under the sanitizers, other builds, deliberate bugs'
	@echo 'make aarch64  compile for 64-bit Arm and run the unit tests in QEMU (user mode)'
	@echo 'make bench    build what users install and measure it'
	@echo 'make rdma-lab a shell on a virtual machine with RDMA devices, with the tool on its PATH (docs/rdma-lab.md)'
	@echo "                CMD='fairway topo'  this command instead of a shell"
	@echo '                TREE=two_sockets    NUMA nodes, PCIe switches and more devices (tests/rdma_vm/trees)'
	@echo 'make packages Debian packages of the library, the tool, the Python module and the NCCL plugin, in build/packages'
	@echo 'make dist     the last commit as a tarball in build/, which builds without a network'
	@echo 'make reference the API as pages, in build/reference/html'
	@echo 'make lint     clang-format and clang-tidy on files that differ from the last commit; ALL=1 for every file,'
	@echo '                FIX=1 to put the format right'
	@echo 'make build    build for development, in build/dev'
	@echo 'make clean    remove build/'
	@echo 'All but clean first install what is missing of the packages that scripts/packages.txt lists (Debian 12).'

setup:
	@scripts/setup

build: setup
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev

demo:
	@scripts/setup users
	@scripts/demo

test: setup
	@LABEL='$(LABEL)' MATCH='$(MATCH)' scripts/test $(or $(STAGE),fast)

test-sanitized: setup
	@LABEL='$(LABEL)' MATCH='$(MATCH)' scripts/test $(or $(STAGE),sanitized)

test-long: setup
	@LABEL='$(LABEL)' MATCH='$(MATCH)' scripts/test $(or $(STAGE),long)

aarch64: setup
	@scripts/setup aarch64
	@scripts/aarch64

bench: setup
	@scripts/bench

rdma-lab: setup
	@CMD='$(subst ','\'',$(value CMD))' TREE='$(TREE)' scripts/rdma_lab

packages:
	@scripts/setup packages
	@scripts/packages

dist:
	@scripts/dist

reference:
	@scripts/setup reference
	@mkdir -p build
	@VERSION=$$(sed -nE 's/^project\(fairway VERSION ([0-9.]+).*/\1/p' CMakeLists.txt) doxygen docs/Doxyfile
	@echo build/reference/html/index.html

lint: setup
	@ALL='$(ALL)' FIX='$(FIX)' scripts/lint

clean:
	@rm -rf build

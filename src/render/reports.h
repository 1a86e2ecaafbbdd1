#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "render/phrases.h"
#include "topology/assess.h"
#include "topology/machine.h"

// What `fairway topo` and its subcommands print, as text. Pure functions.
namespace fairway::render {

// The machine in a few lines: sockets, GPUs, links, NICs, rails, and what is unknown.
std::string summary(const topology::Machine& machine, const TextStyle& style);

// The whole of `fairway topo`: summary, then the matrix, then how to read it.
std::string overview(const topology::Machine& machine, const ExpectRate& expect, const TextStyle& style);
std::string overview(const topology::Fabric& fabric, const TextStyle& style);

// The NICs for a memory (a GPU or a NUMA node), best first, each with its place and its expected rate. `name`: what the
// memory is called, "GPU3" or "NUMA node 1".
std::string nic_choices_text(const topology::Machine& machine, topology::NodeRef memory, const std::string& name,
                             std::span<const topology::NicChoice> choices, const ExpectRate& expect,
                             const TextStyle& style);

// Every RDMA device and interface: whether it is a rail for bulk traffic, and why.
std::string rails_text(const topology::Machine& machine, const TextStyle& style);

// Counters of errors and retransmissions that are not 0; empty if all are.
std::string port_errors_text(const topology::Machine& machine, const TextStyle& style);

// One RDMA device: what each attribute means, and the limit that it sets.
std::string hca_text(const topology::Machine& machine, const topology::RdmaDevice& device, const TextStyle& style);

// The same as rows.
struct HcaRow {
  std::uint32_t port = 0;  // 0: of the device
  std::string kind;        // "attribute", "counter" or "gid"
  std::string name, value, meaning, limit;
};
std::vector<HcaRow> hca_rows(const topology::Machine& machine, const topology::RdmaDevice& device);

std::string findings_text(std::span<const topology::Finding> findings, const TextStyle& style);
std::string notes_text(std::span<const topology::Note> notes, const TextStyle& style);
std::string differences_text(const std::string& a, const std::string& b,
                             std::span<const topology::Difference> differences, const TextStyle& style);

}  // namespace fairway::render

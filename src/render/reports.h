#pragma once

#include <span>
#include <string>

#include "render/words.h"
#include "topology/assess.h"

// What the subcommands of `fairway topo` print, as text. Pure functions.
namespace fairway::render {

// The NICs for a memory, best first, each with its reason. `memory`: "GPU3", "NUMA node 1".
std::string nic_choices_text(const topology::Machine& machine, const std::string& memory,
                             std::span<const topology::NicChoice> choices, const TextStyle& style);

// Every RDMA device and interface: a rail for bulk traffic or not, and why.
std::string rails_text(const topology::Machine& machine, const TextStyle& style);

// What ports count of errors and repetitions, where that is not zero; empty: nothing.
std::string port_errors_text(const topology::Machine& machine, const TextStyle& style);

// One RDMA device: each attribute with a plain sentence and the limit that it sets.
std::string hca_text(const topology::Machine& machine, const topology::RdmaDevice& device, const TextStyle& style);

std::string findings_text(std::span<const topology::Finding> findings, const TextStyle& style);
std::string notes_text(std::span<const topology::Note> notes, const TextStyle& style);
std::string differences_text(const std::string& a, const std::string& b,
                             std::span<const topology::Difference> differences, const TextStyle& style);

}  // namespace fairway::render

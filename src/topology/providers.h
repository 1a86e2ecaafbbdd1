#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/status.h"

struct fi_info;

// What libfabric offers on this machine: its answers, grouped by kind.
namespace fairway::topology {

// Domains (NICs, or a provider's equivalent) that are equal in all of these fields. A value.
struct ProviderRow {
  std::string provider;                   // "efa", "tcp;ofi_rxm"
  std::string version;                    // "1.17"
  std::string endpoint;                   // "RDM", "MSG", "DGRAM"
  std::vector<std::string> does;          // "messages", "one-sided", "atomics", "GPU memory", ...
  std::vector<std::string> memory_modes;  // its requirements on memory registration: "virt_addr", "prov_key", ...
  std::string progress;                   // "auto", "manual"
  bool ordered = false;                   // sends after sends
  std::uint64_t inject_bytes = 0, most_bytes = 0;
  std::uint64_t sends = 0, receives = 0;  // queued on one endpoint at most
  std::uint64_t pieces = 0, places = 0;   // of one operation, here and at the target
  std::uint64_t immediate_bytes = 0, key_bytes = 0;
  std::uint64_t endpoints = 0;        // of one domain; 0: it does not say
  std::uint64_t bits_per_second = 0;  // of one domain; 0: it does not say
  std::vector<std::string> domains;
  bool usual = false;  // the transport `fabric` uses it by default
};

struct Providers {
  std::string library;  // the file
  std::string version;
  std::vector<ProviderRow> rows;
  std::string filter = {};  // that the environment sets, as a sentence; empty: none
};

// unsupported: no libfabric, or a build without it; the message says which.
Result<Providers> providers();
// Of a list of libfabric's answers. Pure.
std::vector<ProviderRow> provider_rows(const fi_info* answers);

std::string providers_text(const Providers& providers);
std::string json(const Providers& providers);

}  // namespace fairway::topology

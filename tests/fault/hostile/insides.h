#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/host/segment.h"

// Finds what the library has open in this process.
namespace fairway::hostile {

std::vector<int> local_pairs();             // connected SOCK_SEQPACKET sockets
std::vector<int> lanes(std::uint16_t but);  // connected TCP sockets whose remote port is not `but`
std::string local_name();                   // of the listening Unix socket; empty: none
std::vector<std::uint16_t> listening_ports();
transport::host::Segment* segment();  // of a link that this side dialed, mapped a second time; null: none
std::size_t descriptors();
std::size_t resident_kib();

int dial_local(const std::string& name);  // a blocking connection; -1: refused
int dial_tcp(std::uint16_t port);
std::uint16_t port_of(const std::string& address);

}  // namespace fairway::hostile

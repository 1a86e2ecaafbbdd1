#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Strict readers of short texts: the whole text is the value, or there is none.
namespace fairway::topology::text {

std::string_view trim(std::string_view s);
std::string lower(std::string_view s);
bool starts_with_nocase(std::string_view s, std::string_view prefix);

std::optional<std::uint64_t> to_unsigned(std::string_view s);  // decimal digits only
std::optional<std::uint64_t> to_hex(std::string_view s);       // with or without 0x
std::optional<std::int64_t> to_signed(std::string_view s);
std::optional<double> to_double(std::string_view s);      // finite
std::optional<std::uint32_t> to_u32(std::string_view s);  // decimal
// The number at the start: "32.0 GT/s PCIe" is 32, "4096 (5)" is 4096.
std::optional<double> leading_double(std::string_view s);
std::optional<std::uint64_t> leading_unsigned(std::string_view s);

std::vector<std::string_view> split(std::string_view s, char separator);  // keeps empty fields
std::vector<std::string_view> words(std::string_view s);                  // blanks separate, none empty
std::vector<std::string_view> lines(std::string_view s);                  // without \r\n

// "1 GPU", "8 GPUs"
std::string count(std::size_t n, std::string_view noun);

// Without the escapes that colour or underline on a terminal.
// Of pasted lines: without "> " of quotes or times of a log, where all lines have them, and with <, > and & where a
// page escaped them. As many lines as before.
std::string without_wrapping(std::string_view s);
std::string without_escapes(std::string_view s);
// UTF-8 with line feeds, of UTF-16 with its mark and of lines that end with carriage returns alone; else empty: it is
// so.
std::string as_plain(std::string_view s);

// Orders "mlx5_2" before "mlx5_10".
bool natural_less(std::string_view a, std::string_view b);

// Replaces control characters and cuts after `limit` bytes, so that hostile input can be quoted in a message.
std::string quote(std::string_view s, std::size_t limit = 60);

}  // namespace fairway::topology::text

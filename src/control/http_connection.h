#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <http_parser.h>

#include "fairway/status.h"

#include "core/runtime.h"

namespace fairway::control {

struct HttpResponse {
  unsigned status = 0;
  std::string body;
};

// A client's HTTP/1.1 connection that posts JSON, one request at a time; http-parser reads the responses. Used on the
// control thread.
class HttpConnection {
 public:
  static constexpr std::size_t kMostBody = 65536;  // of a response

  // `host`: for the Host header.
  HttpConnection(std::unique_ptr<Channel> channel, std::string host);

  // Only when no request is in flight. `authorization`: value of that header; empty: none.
  void post(std::string_view path, std::string_view body, std::string_view authorization);
  [[nodiscard]] bool busy() const { return busy_; }
  // Whether the server closes the connection after its last response: post no more.
  [[nodiscard]] bool ends() const { return ends_; }
  // Sends and receives what it can without blocking. An error is final: the connection broke, or the other end does not
  // speak HTTP, or sent what was not asked for.
  Status step();
  // The response of the request in flight, once it is complete.
  std::optional<HttpResponse> take();

 private:
  Status flush();
  Status receive();

  const std::unique_ptr<Channel> channel_;
  const std::string host_;
  http_parser parser_;
  http_parser_settings settings_;
  std::string out_;
  HttpResponse response_;
  bool busy_ = false, complete_ = false, ends_ = false;
};

}  // namespace fairway::control

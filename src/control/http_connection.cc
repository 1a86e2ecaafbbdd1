#include "control/http_connection.h"

#include <span>
#include <utility>

#include <fmt/format.h>

namespace fairway::control {

HttpConnection::HttpConnection(std::unique_ptr<Channel> channel, std::string host)
    : channel_(std::move(channel)), host_(std::move(host)) {
  http_parser_init(&parser_, HTTP_RESPONSE);
  parser_.data = this;
  http_parser_settings_init(&settings_);
  settings_.on_body = [](http_parser* parser, const char* at, std::size_t size) {
    std::string& body = static_cast<HttpConnection*>(parser->data)->response_.body;
    if (size > kMostBody - body.size()) return 1;
    body.append(at, size);
    return 0;
  };
  settings_.on_message_complete = [](http_parser* parser) {
    auto& self = *static_cast<HttpConnection*>(parser->data);
    self.response_.status = parser->status_code;
    self.complete_ = true;
    self.ends_ = http_should_keep_alive(parser) == 0;
    http_parser_pause(parser, 1);  // nothing may follow before the next request
    return 0;
  };
}

void HttpConnection::post(std::string_view path, std::string_view body, std::string_view authorization) {
  out_ += fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", path,
                      host_, body.size());
  if (!authorization.empty()) out_ += fmt::format("Authorization: {}\r\n", authorization);
  out_ += "\r\n";
  out_ += body;
  busy_ = true;
  http_parser_pause(&parser_, 0);
}

Status HttpConnection::step() {
  if (Status status = flush(); !status) return status;
  return complete_ ? Status() : receive();
}

Status HttpConnection::flush() {
  while (!out_.empty()) {
    const auto sent = channel_->send(std::as_bytes(std::span(out_.data(), out_.size())));
    if (!sent) return sent.status();
    if (*sent == 0) return {};
    out_.erase(0, *sent);
  }
  return {};
}

Status HttpConnection::receive() {
  const Status malformed(ErrorCode::protocol_error, "the server there does not speak HTTP");
  std::array<char, 4096> bytes;
  while (!complete_) {
    const auto got = channel_->receive(std::as_writable_bytes(std::span(bytes)));
    if (!got) return got.status();
    if (*got == 0) return {};
    if (!busy_) return malformed;
    const std::size_t read = http_parser_execute(&parser_, &settings_, bytes.data(), *got);
    if (complete_ ? read != *got : parser_.http_errno != HPE_OK || parser_.upgrade != 0) return malformed;
  }
  return {};
}

std::optional<HttpResponse> HttpConnection::take() {
  if (!complete_) return std::nullopt;
  complete_ = busy_ = false;
  return std::exchange(response_, {});
}

}  // namespace fairway::control

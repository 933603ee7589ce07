package dev.runekeep.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.ResourceInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Why a call failed, with the details that the server sent. Act on code and reason, show the message to people.
 *
 * @param code the gRPC status
 * @param reason an ErrorReason of the contract without its prefix, for example FIELD_INVALID; empty if the server sent none
 * @param message for people
 * @param violations the invalid fields of the request
 * @param retryAfter how long to wait before the call is repeated, if the server names a time
 * @param resourceType what is missing or conflicts, for example {@code session}; empty if the server names nothing
 * @param resource its name
 * @param metadata further details of the reason
 */
public record ErrorDetails(
    Status.Code code,
    String reason,
    String message,
    List<FieldViolation> violations,
    Optional<Duration> retryAfter,
    String resourceType,
    String resource,
    Map<String, String> metadata) {

  /** An invalid field of the request, by its path, and the rule that it breaks. */
  public record FieldViolation(String field, String description) {}

  /** Reads the error of a failed call, or of a future whose call failed. */
  public static ErrorDetails of(Throwable failed) {
    Status status = Status.fromThrowable(failed);
    String reason = "";
    Map<String, String> metadata = Map.of();
    List<FieldViolation> violations = new ArrayList<>();
    Optional<Duration> retryAfter = Optional.empty();
    ResourceInfo resource = ResourceInfo.getDefaultInstance();
    com.google.rpc.Status sent = StatusProto.fromThrowable(failed);
    try {
      for (Any detail : sent == null ? List.<Any>of() : sent.getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          reason = info.getReason();
          metadata = info.getMetadataMap();
        } else if (detail.is(BadRequest.class)) {
          for (BadRequest.FieldViolation one : detail.unpack(BadRequest.class).getFieldViolationsList()) {
            violations.add(new FieldViolation(one.getField(), one.getDescription()));
          }
        } else if (detail.is(RetryInfo.class)) {
          com.google.protobuf.Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
          retryAfter = Optional.of(Duration.ofSeconds(delay.getSeconds(), delay.getNanos()));
        } else if (detail.is(ResourceInfo.class)) {
          resource = detail.unpack(ResourceInfo.class);
        }
      }
    } catch (InvalidProtocolBufferException unreadable) {
      throw new IllegalStateException("the details of an error cannot be read", unreadable);
    }
    String message = status.getDescription() == null ? "" : status.getDescription();
    return new ErrorDetails(
        status.getCode(),
        reason,
        message,
        List.copyOf(violations),
        retryAfter,
        resource.getResourceType(),
        resource.getResourceName(),
        metadata);
  }

  /** Returns the path of the first invalid field, for example messages[0].parts; empty if the server names none. */
  public String field() {
    return violations.isEmpty() ? "" : violations.get(0).field();
  }

  /**
   * Returns whether the same call, a mutation with the same request_id, may succeed later. A server that is stopping ends
   * calls with CANCELLED.
   */
  public boolean retryable() {
    return switch (code) {
      case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED -> true;
      case RESOURCE_EXHAUSTED -> retryAfter.isPresent();
      default -> false;
    };
  }
}

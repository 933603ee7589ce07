package dev.runekeep.client;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.MethodDescriptor;
import com.google.protobuf.Message;
import dev.runekeep.v1.MethodOptions;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ConnectivityState;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.protobuf.ProtoMethodDescriptorSupplier;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/**
 * Gives every call who calls, a deadline and a request id. gRPC repeats calls below this, so that a repeat has the same
 * request id and shares the deadline.
 */
final class CallRules implements ClientInterceptor {
  private final ManagedChannel connection;
  private final Metadata identity = new Metadata();
  private final Duration timeout;

  CallRules(ManagedChannel connection, Runekeep.Builder options) {
    this.connection = connection;
    this.timeout = options.timeout;
    put("authorization", options.apiKey.isEmpty() ? "" : "Bearer " + options.apiKey);
    put("x-runekeep-account", options.account);
    put("x-runekeep-user", options.user);
  }

  private void put(String key, String value) {
    if (!value.isEmpty()) {
      identity.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
    }
  }

  @Override
  public <Q, A> ClientCall<Q, A> interceptCall(
      io.grpc.MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
    // gRPC may wait up to two minutes before it connects again. A call must find a restarted server.
    if (connection.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
      connection.resetConnectBackoff();
    }
    return new SimpleForwardingClientCall<Q, A>(next.newCall(method, withDeadline(method, options))) {
      @Override
      public void start(Listener<A> listener, Metadata headers) {
        headers.merge(identity);
        super.start(listener, headers);
      }

      @Override
      public void sendMessage(Q message) {
        super.sendMessage(method.getType().clientSendsOneMessage() ? withRequestId(message) : message);
      }
    };
  }

  private CallOptions withDeadline(io.grpc.MethodDescriptor<?, ?> method, CallOptions options) {
    if (options.getDeadline() != null
        || !(method.getSchemaDescriptor() instanceof ProtoMethodDescriptorSupplier supplier)) {
      return options;
    }
    MethodDescriptor described = supplier.getMethodDescriptor();
    if (described.isClientStreaming() || described.isServerStreaming()) {
      return options;
    }
    com.google.protobuf.Duration byContract = described.getOptions().getExtension(MethodOptions.rules).getDeadline();
    Duration deadline =
        timeout != null ? timeout : Duration.ofSeconds(byContract.getSeconds(), byContract.getNanos());
    return deadline.isZero() ? options : options.withDeadlineAfter(deadline.toNanos(), TimeUnit.NANOSECONDS);
  }

  /** Returns the request with a new request_id, if it has this field and the caller left it empty. */
  @SuppressWarnings("unchecked")
  private static <Q> Q withRequestId(Q request) {
    if (!(request instanceof Message message)) {
      return request;
    }
    FieldDescriptor field = message.getDescriptorForType().findFieldByName("request_id");
    if (field == null || message.hasField(field)) {
      return request;
    }
    return (Q) message.toBuilder().setField(field, Messages.newId()).build();
  }
}

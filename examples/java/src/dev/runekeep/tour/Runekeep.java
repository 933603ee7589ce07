package dev.runekeep.tour;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.Durations;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.runekeep.v1.HistoryServiceGrpc;
import dev.runekeep.v1.MemoryServiceGrpc;
import dev.runekeep.v1.SessionServiceGrpc;
import dev.runekeep.v1.Task;
import dev.runekeep.v1.TaskEvent;
import dev.runekeep.v1.TaskServiceGrpc;
import dev.runekeep.v1.WatchTaskRequest;
import dev.runekeep.v1.WatchTaskResponse;
import io.grpc.ChannelCredentials;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.AbstractStub;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.LongConsumer;
import java.util.function.Supplier;

/** A server, spoken to over one channel: identity, deadlines, repeats, errors, watches that outlive a broken stream. */
public final class Runekeep implements AutoCloseable {
  private static final long CALL_MS = 10_000;
  private static final long AWAY_MS = 60_000;
  private static final long FIRST_PAUSE_MS = 100;
  private static final long LONGEST_PAUSE_MS = 2_000;

  /** Three keep-alives of the server that did not come. */
  private static final long SILENCE_MS = 45_000;

  private final ManagedChannel channel;
  private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(Runekeep::quiet);

  /**
   * TLS is used when there is a certificate to trust or the address asks for it.
   *
   * @param variables RUNEKEEP_API_KEY, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE,
   *     RUNEKEEP_KEY_FILE, as far as they are set
   */
  public Runekeep(String address, Map<String, String> variables) throws IOException {
    String target = address.replaceFirst("^https?://", "");
    String key = variables.get("RUNEKEEP_API_KEY");
    boolean secure = address.startsWith("https://") || variables.containsKey("RUNEKEEP_CA_FILE");
    if (key != null && !secure && !target.matches("(127(\\.\\d{1,3}){3}|localhost|\\[::1\\]):\\d+")) {
      throw new IllegalArgumentException(
          "a key is not sent in plain text: name the server's CA file, or an https:// address");
    }
    Metadata identity = new Metadata();
    put(identity, "authorization", key == null ? null : "Bearer " + key);
    put(identity, "x-runekeep-account", variables.get("RUNEKEEP_ACCOUNT"));
    put(identity, "x-runekeep-user", variables.get("RUNEKEEP_USER"));
    channel =
        Grpc.newChannelBuilder(target, secure ? tls(variables) : InsecureChannelCredentials.create())
            .intercept(MetadataUtils.newAttachHeadersInterceptor(identity))
            .build();
  }

  private static Thread quiet(Runnable task) {
    Thread thread = new Thread(task, "runekeep-silence");
    thread.setDaemon(true);
    return thread;
  }

  private static void put(Metadata metadata, String key, String value) {
    if (value != null) {
      metadata.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
    }
  }

  private static ChannelCredentials tls(Map<String, String> variables) throws IOException {
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    if (variables.containsKey("RUNEKEEP_CA_FILE")) {
      tls.trustManager(new File(variables.get("RUNEKEEP_CA_FILE")));
    }
    if (variables.containsKey("RUNEKEEP_CERT_FILE")) {
      tls.keyManager(new File(variables.get("RUNEKEEP_CERT_FILE")), new File(variables.get("RUNEKEEP_KEY_FILE")));
    }
    return tls.build();
  }

  public SessionServiceGrpc.SessionServiceBlockingStub sessions() {
    return dated(SessionServiceGrpc.newBlockingStub(channel));
  }

  public MemoryServiceGrpc.MemoryServiceBlockingStub memories() {
    return dated(MemoryServiceGrpc.newBlockingStub(channel));
  }

  public HistoryServiceGrpc.HistoryServiceBlockingStub history() {
    return dated(HistoryServiceGrpc.newBlockingStub(channel));
  }

  /** A deadline begins when the stub is made: each call has a stub of its own. */
  private static <S extends AbstractStub<S>> S dated(S stub) {
    return stub.withDeadlineAfter(CALL_MS, MILLISECONDS);
  }

  /**
   * Makes a call, and makes the very same one again while the server is away or asks to come later. Every mutation
   * carries a request_id, so it is done once.
   */
  public <T> T call(Supplier<T> call) throws InterruptedException {
    long end = System.nanoTime() + MILLISECONDS.toNanos(AWAY_MS);
    for (long pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      try {
        return call.get();
      } catch (StatusRuntimeException error) {
        long spread = (long) (pause * (0.5 + ThreadLocalRandom.current().nextDouble()));
        long wait = Math.max(Explanation.of(error).retryAfterMs, spread);
        if (!passing(error) || System.nanoTime() + MILLISECONDS.toNanos(wait) > end) {
          throw error;
        }
        Thread.sleep(wait);
      }
    }
  }

  private static boolean passing(StatusRuntimeException error) {
    return error.getStatus().getCode() == Status.Code.UNAVAILABLE || Explanation.of(error).retryAfterMs > 0;
  }

  /**
   * Follows a task to its end and tells each event once and in order. A stream that breaks or falls silent is taken up
   * again after the last event seen; then {@code resumed} is told.
   */
  public Task watch(String taskId, Consumer<TaskEvent> event, LongConsumer resumed) throws InterruptedException {
    long[] last = {0};
    long[] heard = {System.nanoTime()};
    long pause = FIRST_PAUSE_MS;
    while (true) {
      long before = last[0];
      try {
        Task ended =
            follow(
                taskId,
                before,
                told -> {
                  if (told.getSequence() > last[0]) {
                    last[0] = told.getSequence();
                    heard[0] = System.nanoTime();
                    event.accept(told);
                  }
                });
        if (ended != null) {
          return ended;
        }
      } catch (StatusRuntimeException error) {
        boolean silent = error.getStatus().getCode() == Status.Code.CANCELLED;
        if (!(silent || passing(error)) || System.nanoTime() - heard[0] > MILLISECONDS.toNanos(AWAY_MS)) {
          throw error;
        }
      }
      pause = last[0] > before ? FIRST_PAUSE_MS : Math.min(pause * 2, LONGEST_PAUSE_MS);
      Thread.sleep(pause);
      resumed.accept(last[0]);
    }
  }

  /** The task as it ended, or null when the stream ended before it. */
  private Task follow(String taskId, long after, Consumer<TaskEvent> event) {
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      Context outer = context.attach();
      ScheduledFuture<?> silence = null;
      Task ended = null;
      try {
        WatchTaskRequest request =
            WatchTaskRequest.newBuilder().setTaskId(taskId).setAfterSequence(after).build();
        Iterator<WatchTaskResponse> stream = TaskServiceGrpc.newBlockingStub(channel).watchTask(request);
        silence = clock.schedule(() -> context.cancel(null), SILENCE_MS, MILLISECONDS);
        while (stream.hasNext()) {
          WatchTaskResponse response = stream.next();
          silence.cancel(false);
          silence = clock.schedule(() -> context.cancel(null), SILENCE_MS, MILLISECONDS);
          if (response.hasEvent()) {
            event.accept(response.getEvent());
          } else if (response.hasEnded()) {
            // The server closes the stream next.
            ended = response.getEnded();
          }
        }
        return ended;
      } catch (StatusRuntimeException broken) {
        if (ended == null) {
          throw broken;
        }
        return ended;
      } finally {
        if (silence != null) {
          silence.cancel(false);
        }
        context.detach(outer);
      }
    }
  }

  @Override
  public void close() throws InterruptedException {
    clock.shutdownNow();
    channel.shutdown().awaitTermination(5, SECONDS);
  }

  /** What an error's details say: the stable word that a program acts on, and the fields that broke a rule. */
  public static final class Explanation {
    public final String code;
    public final String reason;
    public final List<String> fields;
    final transient long retryAfterMs;

    private Explanation(String code, String reason, List<String> fields, long retryAfterMs) {
      this.code = code;
      this.reason = reason;
      this.fields = fields;
      this.retryAfterMs = retryAfterMs;
    }

    public static Explanation of(StatusRuntimeException error) {
      String reason = "";
      List<String> fields = new ArrayList<>();
      long retryAfterMs = 0;
      try {
        for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
          if (detail.is(ErrorInfo.class)) {
            reason = detail.unpack(ErrorInfo.class).getReason();
          } else if (detail.is(BadRequest.class)) {
            detail.unpack(BadRequest.class).getFieldViolationsList().forEach(bad -> fields.add(bad.getField()));
          } else if (detail.is(RetryInfo.class)) {
            retryAfterMs = Durations.toMillis(detail.unpack(RetryInfo.class).getRetryDelay());
          }
        }
      } catch (InvalidProtocolBufferException unreadable) {
        throw new IllegalStateException("the server's error details cannot be read", unreadable);
      }
      return new Explanation(error.getStatus().getCode().name(), reason, fields, retryAfterMs);
    }
  }
}

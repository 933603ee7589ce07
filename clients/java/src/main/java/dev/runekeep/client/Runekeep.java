package dev.runekeep.client;

import dev.runekeep.v1.Task;
import dev.runekeep.v1.WatchTaskResponse;
import io.grpc.Channel;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import java.io.File;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A client of a Runekeep server, for one user. Any number of threads may share it. It connects at its first call.
 *
 * <pre>{@code
 * try (Runekeep runekeep = Runekeep.builder("127.0.0.1:7433").user("mara").build()) {
 *   BlockingStubs calls = runekeep.blocking();
 *   calls.sessions().getSession(GetSessionRequest.newBuilder().setSession("monday").setAutoCreate(true).build());
 *   calls.sessions().addMessages(
 *       AddMessagesRequest.newBuilder().setSession("monday").addMessages(Messages.user("I live in Lisbon.")).build());
 * }
 * }</pre>
 *
 * Every call through its stubs carries who calls, a deadline and a request id, and is repeated while the server is away,
 * as far as the contract allows it. A call that fails throws a {@link io.grpc.StatusRuntimeException}, which {@link
 * ErrorDetails#of} reads.
 */
public final class Runekeep implements AutoCloseable {
  private static final int CLOSE_SECONDS = 5;

  private final ManagedChannel connection;
  private final Channel channel;
  private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(Runekeep::daemon);

  private Runekeep(Builder options) throws IOException {
    connection = Transport.open(options);
    Channel inner = ClientInterceptors.intercept(connection, options.interceptors);
    channel = ClientInterceptors.intercept(inner, new CallRules(connection, options));
  }

  /**
   * Returns a builder for the server at {@code host:port}.
   *
   * @param address {@code host:port}; {@code https://host:port} means TLS; {@code dns:///host:port} spreads calls over all
   *     addresses of the host. Empty: RUNEKEEP_ADDRESS, or else 127.0.0.1:7433
   */
  public static Builder builder(String address) {
    return new Builder(address);
  }

  /** Returns stubs that return an answer. */
  public BlockingStubs blocking() {
    return new BlockingStubs(channel);
  }

  /** Returns stubs that return a future of an answer. */
  public AsyncStubs async() {
    return new AsyncStubs(channel);
  }

  /** Returns the channel, for stubs of other kinds: {@code MemoryServiceGrpc.newStub(runekeep.channel())}. */
  public Channel channel() {
    return channel;
  }

  /**
   * Follows a task and returns it as it ended. If the stream breaks, it resumes after the last event.
   *
   * @param afterSequence the last event that you have seen; 0: none
   * @param listener gets a snapshot, each later event once and in order, and the ended task
   * @throws io.grpc.StatusRuntimeException if the server refuses, or stays away for a minute
   */
  public Task watch(String taskId, long afterSequence, Consumer<WatchTaskResponse> listener)
      throws InterruptedException {
    CompletableFuture<Task> watched = watchAsync(taskId, afterSequence, listener);
    try {
      return watched.get();
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      throw new IllegalStateException(failed.getCause());
    } finally {
      watched.cancel(true);
    }
  }

  /** Returns at once; see {@link #watch}. The listener is called on threads of gRPC. Cancel the future to end it. */
  public CompletableFuture<Task> watchAsync(String taskId, long afterSequence, Consumer<WatchTaskResponse> listener) {
    return new TaskWatch(channel, clock, taskId, afterSequence, listener).start();
  }

  /** Waits for calls under way, then closes the connection. Watches end with UNAVAILABLE. */
  @Override
  public void close() {
    connection.shutdown();
    clock.shutdownNow();
    try {
      connection.awaitTermination(CLOSE_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    } finally {
      connection.shutdownNow();
    }
  }

  private static Thread daemon(Runnable task) {
    Thread thread = new Thread(task, "runekeep");
    thread.setDaemon(true);
    return thread;
  }

  /**
   * Says who calls, which servers to trust, and how long calls may take. What is not set is taken from the environment:
   * RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE, RUNEKEEP_KEY_FILE.
   */
  public static final class Builder {
    final String address;
    String account = variable("RUNEKEEP_ACCOUNT");
    String user = variable("RUNEKEEP_USER");
    String apiKey = variable("RUNEKEEP_API_KEY");
    File caFile = file(variable("RUNEKEEP_CA_FILE"));
    File certFile = file(variable("RUNEKEEP_CERT_FILE"));
    File keyFile = file(variable("RUNEKEEP_KEY_FILE"));
    Duration timeout;
    final List<ClientInterceptor> interceptors = new ArrayList<>();

    private Builder(String address) {
      String known = address == null || address.isEmpty() ? variable("RUNEKEEP_ADDRESS") : address;
      this.address = known.isEmpty() ? "127.0.0.1:7433" : known;
    }

    private static String variable(String name) {
      String value = System.getenv(name);
      return value == null ? "" : value;
    }

    private static File file(String path) {
      return path.isEmpty() ? null : new File(path);
    }

    /** Names the account where the server takes no keys. */
    public Builder account(String account) {
      this.account = Objects.requireNonNullElse(account, "");
      return this;
    }

    /** Names the user where the server takes no keys, or beside the key of an account. */
    public Builder user(String user) {
      this.user = Objects.requireNonNullElse(user, "");
      return this;
    }

    /** Says for whom the caller acts. The key is never sent in plain text to another machine. */
    public Builder apiKey(String apiKey) {
      this.apiKey = Objects.requireNonNullElse(apiKey, "");
      return this;
    }

    /** Names the certificates of trusted authorities, in PEM. It switches TLS on. */
    public Builder caFile(File caFile) {
      this.caFile = caFile;
      return this;
    }

    /** Names the client's certificate and its key, in PEM, for servers that ask for one. */
    public Builder certificate(File certFile, File keyFile) {
      this.certFile = certFile;
      this.keyFile = keyFile;
      return this;
    }

    /** Sets the deadline of unary calls whose stub sets none, in place of that of the method by the contract. */
    public Builder timeout(Duration timeout) {
      this.timeout = timeout;
      return this;
    }

    /** Adds an interceptor, for example for telemetry. It sees calls as they are sent. */
    public Builder interceptor(ClientInterceptor interceptor) {
      interceptors.add(interceptor);
      return this;
    }

    /**
     * Returns the client.
     *
     * @throws IOException if a file cannot be read
     * @throws IllegalArgumentException if the options cannot be meant so
     */
    public Runekeep build() throws IOException {
      return new Runekeep(this);
    }
  }
}

package dev.runekeep.client;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import dev.runekeep.v1.Task;
import dev.runekeep.v1.TaskServiceGrpc;
import dev.runekeep.v1.WatchTaskRequest;
import dev.runekeep.v1.WatchTaskResponse;
import io.grpc.Channel;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;

/** Follows a task over broken streams. One stream is open at a time, and gRPC calls its observer from one thread at a time. */
final class TaskWatch {
  /** Three missed keep-alives of the server: the stream is dead, whatever the socket says. */
  private static final long SILENCE_MS = 45_000;

  /** How long the server may be away at a time. */
  private static final long GIVE_UP_MS = 60_000;

  private static final long FIRST_PAUSE_MS = 100;
  private static final long MAX_PAUSE_MS = 2_000;
  private static final long CLOSE_MS = 1_000;
  private static final String UNWANTED = "the caller wants no more";

  private final Channel channel;
  private final ScheduledExecutorService clock;
  private final String taskId;
  private final Consumer<WatchTaskResponse> listener;
  private final CompletableFuture<Task> result = new CompletableFuture<>();

  private volatile Stream stream;
  private long last;
  private boolean begun;
  private long heard = System.nanoTime();
  private long pause;

  TaskWatch(
      Channel channel,
      ScheduledExecutorService clock,
      String taskId,
      long afterSequence,
      Consumer<WatchTaskResponse> listener) {
    this.channel = channel;
    this.clock = clock;
    this.taskId = taskId;
    this.last = afterSequence;
    this.listener = listener;
  }

  CompletableFuture<Task> start() {
    open();
    result.whenComplete((task, failed) -> stream.stop(UNWANTED));
    return result;
  }

  private void open() {
    stream = new Stream();
    if (result.isDone()) {
      return;
    }
    WatchTaskRequest request = WatchTaskRequest.newBuilder().setTaskId(taskId).setAfterSequence(last).build();
    TaskServiceGrpc.newStub(channel).watchTask(request, stream);
    if (result.isDone()) {
      stream.stop(UNWANTED); // Cancelled while the stream was opened.
    }
  }

  private boolean isNew(WatchTaskResponse update) {
    switch (update.getUpdateCase()) {
      case SNAPSHOT:
        boolean first = !begun;
        begun = true;
        return first;
      case EVENT:
        boolean later = update.getEvent().getSequence() > last;
        last = Math.max(last, update.getEvent().getSequence());
        return later;
      case ENDED:
        return true;
      default:
        return false; // A keep-alive.
    }
  }

  private void resume(Status broken, long askedMs) {
    if (result.isDone()) {
      return;
    }
    pause = Math.min(Math.max(pause * 2, FIRST_PAUSE_MS), MAX_PAUSE_MS);
    long spread = (long) (pause * (0.5 + ThreadLocalRandom.current().nextDouble() / 2));
    long wait = Math.max(spread, Math.min(askedMs, MAX_PAUSE_MS));
    if (System.nanoTime() + MILLISECONDS.toNanos(wait) - heard > MILLISECONDS.toNanos(GIVE_UP_MS)) {
      result.completeExceptionally(broken.asRuntimeException());
      return;
    }
    try {
      clock.schedule(this::open, wait, MILLISECONDS);
    } catch (RejectedExecutionException closed) {
      result.completeExceptionally(broken.asRuntimeException());
    }
  }

  private final class Stream implements ClientResponseObserver<WatchTaskRequest, WatchTaskResponse> {
    private volatile ClientCallStreamObserver<WatchTaskRequest> call;
    private Future<?> limit;
    private Task ended;

    @Override
    public void beforeStart(ClientCallStreamObserver<WatchTaskRequest> started) {
      call = started;
      stopAfter(SILENCE_MS, "the server stopped sending");
    }

    @Override
    public void onNext(WatchTaskResponse update) {
      stopAfter(update.hasEnded() ? CLOSE_MS : SILENCE_MS, "the server stopped sending");
      heard = System.nanoTime();
      pause = 0;
      if (!isNew(update)) {
        return;
      }
      if (update.hasEnded()) {
        // The server closes the stream next. A stream that is cancelled before would be in its log.
        ended = update.getEnded();
      }
      try {
        listener.accept(update);
      } catch (RuntimeException | Error failed) {
        result.completeExceptionally(failed);
      }
    }

    @Override
    public void onError(Throwable failed) {
      limit.cancel(false);
      ErrorDetails details = ErrorDetails.of(failed);
      if (ended != null) {
        result.complete(ended);
      } else if (details.code() == Status.Code.UNAVAILABLE || details.code() == Status.Code.CANCELLED) {
        Status broken = Status.UNAVAILABLE.withDescription(details.message());
        resume(broken, details.retryAfter().map(java.time.Duration::toMillis).orElse(0L));
      } else {
        result.completeExceptionally(failed);
      }
    }

    @Override
    public void onCompleted() {
      limit.cancel(false);
      if (ended != null) {
        result.complete(ended);
      } else {
        resume(Status.UNAVAILABLE.withDescription("the server ended the stream before the task"), 0);
      }
    }

    private void stopAfter(long milliseconds, String why) {
      if (limit != null) {
        limit.cancel(false);
      }
      try {
        limit = clock.schedule(() -> stop(why), milliseconds, MILLISECONDS);
      } catch (RejectedExecutionException closed) {
        limit = CompletableFuture.completedFuture(null); // The client is closed, and so is the call.
      }
    }

    void stop(String why) {
      if (call != null) {
        call.cancel(why, null);
      }
    }
  }
}

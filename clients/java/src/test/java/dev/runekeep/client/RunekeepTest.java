package dev.runekeep.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.common.util.concurrent.ListenableFuture;
import dev.runekeep.v1.AddMessagesRequest;
import dev.runekeep.v1.CommitSessionRequest;
import dev.runekeep.v1.FindMemoriesRequest;
import dev.runekeep.v1.FindMemoriesResponse;
import dev.runekeep.v1.GetSessionRequest;
import dev.runekeep.v1.ListMessagesRequest;
import dev.runekeep.v1.ListSessionsRequest;
import dev.runekeep.v1.ListTasksRequest;
import dev.runekeep.v1.ListTasksResponse;
import dev.runekeep.v1.Message;
import dev.runekeep.v1.RecallRequest;
import dev.runekeep.v1.Role;
import dev.runekeep.v1.Task;
import dev.runekeep.v1.TaskState;
import dev.runekeep.v1.WatchTaskResponse;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Tests against real servers, which {@code make test-java} starts: one that takes no keys, with an extractor, and one that
 * takes keys over TLS.
 */
final class RunekeepTest {
  private static final FindMemoriesRequest ANYTHING = FindMemoriesRequest.newBuilder().setQuery("anything").build();

  private final List<AutoCloseable> opened = new ArrayList<>();

  @AfterEach
  void closeAll() throws Exception {
    for (AutoCloseable one : opened) {
      one.close();
    }
  }

  private static String variable(String name) {
    String value = System.getenv(name);
    return value == null ? fail(name + " is not set: run `make test-java`, which starts the servers") : value;
  }

  private Runekeep open(Runekeep.Builder builder) throws IOException {
    Runekeep client = builder.build();
    opened.add(client);
    return client;
  }

  /** A user of its own, on the server without keys. */
  private static Runekeep.Builder user() {
    return user(variable("RUNEKEEP_TEST_OPEN"));
  }

  private static Runekeep.Builder user(String address) {
    return Runekeep.builder(address).user("u-" + Messages.newId());
  }

  private Proxy proxy() throws IOException {
    Proxy between = new Proxy(variable("RUNEKEEP_TEST_OPEN"));
    opened.add(between);
    return between;
  }

  private static void say(Runekeep client, Message... messages) {
    client.blocking().sessions().getSession(
        GetSessionRequest.newBuilder().setSession("s").setAutoCreate(true).build());
    client.blocking().sessions().addMessages(added(messages).build());
  }

  private static AddMessagesRequest.Builder added(Message... messages) {
    return AddMessagesRequest.newBuilder().setSession("s").addAllMessages(List.of(messages));
  }

  private static String commit(Runekeep client) {
    CommitSessionRequest request = CommitSessionRequest.newBuilder().setSession("s").build();
    return client.blocking().sessions().commitSession(request).getTaskId();
  }

  private static List<String> texts(Runekeep client) {
    ListMessagesRequest request = ListMessagesRequest.newBuilder().setSession("s").build();
    return client.blocking().sessions().listMessages(request).getMessagesList().stream()
        .map(message -> message.getParts(0).getText().getText())
        .toList();
  }

  private static ErrorDetails failure(Runnable call) {
    return ErrorDetails.of(assertThrows(StatusRuntimeException.class, call::run));
  }

  private static void listTasks(Runekeep client) {
    client.blocking().tasks().listTasks(ListTasksRequest.getDefaultInstance());
  }

  @Test
  void whatWasSaidIsRememberedRecalledAndFound() throws Exception {
    Runekeep client = open(user());
    say(client, Messages.user("I live in Lisbon and I drink tea."), Messages.assistant("Noted."));
    Task task = client.watch(commit(client), 0, update -> {});
    assertEquals(TaskState.TASK_STATE_COMPLETED, task.getState());
    long revision = task.getResult().getRevision();
    RecallRequest recall =
        RecallRequest.newBuilder().setQuery("Where do I live?").setMinRevision(revision).build();
    assertTrue(client.blocking().memories().recall(recall).getText().contains("Lisbon"));
    FindMemoriesRequest find =
        FindMemoriesRequest.newBuilder().setQuery("Where do I live?").setLimit(1).setMinRevision(revision).build();
    ListenableFuture<FindMemoriesResponse> found = client.async().memories().findMemories(find);
    assertEquals(1, found.get().getResultsCount());
  }

  @Test
  void aKeySaysWhoCallsOverTls() throws Exception {
    String address = variable("RUNEKEEP_TEST_SECURED");
    File caFile = new File(variable("RUNEKEEP_TEST_CA"));
    String key = variable("RUNEKEEP_TEST_KEY");
    Runekeep client = open(Runekeep.builder(address).apiKey(key).caFile(caFile));
    say(client, Messages.user("Hello."));
    String uri =
        client.blocking().sessions().getSession(GetSessionRequest.newBuilder().setSession("s").build())
            .getSession().getUri();
    assertEquals("viking://user/" + variable("RUNEKEEP_TEST_USER") + "/sessions/s", uri);

    Runekeep stranger = open(Runekeep.builder(address).apiKey(key + "x").caFile(caFile));
    ErrorDetails refused = failure(() -> listTasks(stranger));
    assertEquals(Status.Code.UNAUTHENTICATED, refused.code());
    assertEquals("ACCESS_DENIED", refused.reason());

    // The authorities of this system did not sign the server's certificate.
    Runekeep distrustful = open(Runekeep.builder("https://" + address));
    assertEquals(Status.Code.UNAVAILABLE, failure(() -> listTasks(distrustful)).code());
  }

  @Test
  void optionsThatCannotBeMeantAreRefused(@TempDir Path folder) throws IOException {
    File file = Files.createFile(folder.resolve("empty.pem")).toFile();
    refuses("plain text", Runekeep.builder("memory.example:7433").apiKey("rk_1"));
    refuses("no address", Runekeep.builder("memory.example"));
    refuses("no address", Runekeep.builder("http://memory.example:7433"));
    refuses("go together", Runekeep.builder("https://memory.example").certificate(file, null));
    refuses("needs TLS", Runekeep.builder("127.0.0.1:7433").certificate(file, file));
  }

  private static void refuses(String why, Runekeep.Builder builder) {
    IllegalArgumentException refused = assertThrows(IllegalArgumentException.class, builder::build);
    assertTrue(refused.getMessage().contains(why), refused.getMessage());
  }

  @Test
  void anErrorHasItsReasonAndField() throws Exception {
    Runekeep client = open(user());
    ErrorDetails invalid = failure(() -> say(client, Message.newBuilder().setRole(Role.ROLE_USER).build()));
    assertEquals(Status.Code.INVALID_ARGUMENT, invalid.code());
    assertEquals("FIELD_INVALID", invalid.reason());
    assertEquals("messages[0].parts", invalid.field());
    assertFalse(invalid.retryable());

    GetSessionRequest nobody = GetSessionRequest.newBuilder().setSession("nobody").build();
    ExecutionException thrown =
        assertThrows(ExecutionException.class, () -> client.async().sessions().getSession(nobody).get());
    ErrorDetails missing = ErrorDetails.of(thrown);
    assertEquals("RESOURCE_NOT_FOUND", missing.reason());
    assertEquals(List.of("session", "nobody"), List.of(missing.resourceType(), missing.resource()));

    StatusRuntimeException unknown =
        assertThrows(StatusRuntimeException.class, () -> client.watch("00000000-0000-7000-8000-000000000000", 0, u -> {}));
    assertEquals("RESOURCE_NOT_FOUND", ErrorDetails.of(unknown).reason());
  }

  @Test
  void eachRequestGetsAnIdOfItsOwn() throws Exception {
    Runekeep client = open(user());
    say(client, Messages.user("Hello."));
    AddMessagesRequest request = added(Messages.user("Again.")).build();
    client.blocking().sessions().addMessages(request);
    client.blocking().sessions().addMessages(request);
    AddMessagesRequest once = request.toBuilder().setRequestId(Messages.newId()).build();
    client.blocking().sessions().addMessages(once);
    client.blocking().sessions().addMessages(once);
    assertEquals(List.of("Hello.", "Again.", "Again.", "Again."), texts(client));
  }

  @Test
  void aCallWhoseConnectionBreaksIsRepeatedAndDoneOnce() throws Exception {
    Proxy between = proxy();
    Runekeep client = open(user(between.address()));
    say(client, Messages.user("Hello."));
    // gRPC by default repeats no request above 1 MiB.
    Message.Builder message = Messages.user("Once.").toBuilder();
    String text = "word ".repeat(40_000);
    for (int part = 0; part < 6; part++) {
      message.addAllParts(Messages.user(text).getPartsList());
    }
    message.addAllParts(Messages.user("this is the one").getPartsList());
    between.cutAfter("this is the one");
    client.blocking().sessions().addMessages(added(message.build()).build());
    assertEquals(List.of("Hello.", "Once."), texts(client));
    assertTrue(between.connections() >= 2, "the connection was not broken");
  }

  @Test
  void callsHaveTheDeadlineOfTheContract() throws Exception {
    Map<String, Long> seconds = new ConcurrentHashMap<>();
    Runekeep client = open(user().interceptor(new DeadlineRecorder(seconds)));
    client.blocking().memories().findMemories(ANYTHING);
    listTasks(client);
    client.blocking().sessions().withDeadlineAfter(2, TimeUnit.SECONDS)
        .listSessions(ListSessionsRequest.getDefaultInstance());
    isBetween(5, seconds.get("FindMemories"), 10);
    isBetween(2, seconds.get("ListTasks"), 5);
    isBetween(0, seconds.get("ListSessions"), 2);
  }

  private static void isBetween(long least, Long seconds, long most) {
    assertTrue(seconds != null && least <= seconds && seconds < most, String.valueOf(seconds));
  }

  private record DeadlineRecorder(Map<String, Long> seconds) implements ClientInterceptor {
    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      seconds.put(method.getBareMethodName(), options.getDeadline().timeRemaining(TimeUnit.SECONDS));
      return next.newCall(method, options);
    }
  }

  @Test
  void aCallThatTakesTooLongFails() throws Exception {
    // Accepts connections and answers nothing.
    ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    opened.add(silent);
    Runekeep client = open(user("127.0.0.1:" + silent.getLocalPort()).timeout(Duration.ofMillis(300)));
    ErrorDetails late = failure(() -> client.blocking().memories().findMemories(ANYTHING));
    assertEquals(Status.Code.DEADLINE_EXCEEDED, late.code());
    assertTrue(late.retryable());
  }

  @Test
  void aWatchGoesOnAfterABrokenConnection() throws Exception {
    Proxy between = proxy();
    Runekeep client = open(user(between.address()));
    say(client, Messages.user("I live in Lisbon."));
    String task = commit(client);
    List<String> kinds = new ArrayList<>();
    List<Long> sequences = new ArrayList<>();
    client.watch(
        task,
        0,
        update -> {
          if (update.hasEvent()) {
            sequences.add(update.getEvent().getSequence());
            if (sequences.size() == 1) {
              between.cut();
            }
          } else {
            kinds.add(update.getUpdateCase().name());
          }
        });
    assertEquals(List.of("SNAPSHOT", "ENDED"), kinds);
    assertTrue(sequences.size() >= 3);
    assertEquals(IntStream.rangeClosed(1, sequences.size()).mapToObj(Long::valueOf).toList(), sequences);
    assertTrue(between.connections() >= 2, "the connection was not broken");

    List<Long> later = new ArrayList<>();
    client.watch(task, 2, update -> { if (update.hasEvent()) later.add(update.getEvent().getSequence()); });
    assertEquals(sequences.subList(2, sequences.size()), later);
  }

  @Test
  void aWatchEndsWithItsFutureOrItsListener() throws Exception {
    Runekeep client = open(user());
    say(client, Messages.user("I live in Lisbon."));
    String task = commit(client);
    CountDownLatch begun = new CountDownLatch(1);
    CompletableFuture<Task> watched = client.watchAsync(task, 0, update -> begun.countDown());
    assertTrue(begun.await(30, TimeUnit.SECONDS));
    watched.cancel(true);
    assertThrows(CancellationException.class, watched::get);
    IllegalStateException thrown =
        assertThrows(IllegalStateException.class, () -> client.watch(task, 0, RunekeepTest::refuse));
    assertEquals("enough", thrown.getMessage());
  }

  private static void refuse(WatchTaskResponse update) {
    throw new IllegalStateException("enough");
  }

  @Test
  void callsAreSpreadOverTheAddressesOfAName() throws Exception {
    String address = variable("RUNEKEEP_TEST_OPEN");
    Runekeep client = open(user("dns:///localhost" + address.substring(address.lastIndexOf(':'))));
    ListTasksResponse listed = client.async().tasks().listTasks(ListTasksRequest.getDefaultInstance()).get();
    assertEquals(0, listed.getTasksCount());
  }

  @Test
  void idsAreUuidsThatBeginWithTheTime() throws Exception {
    String before = Messages.newId();
    Thread.sleep(2);
    String after = Messages.newId();
    assertTrue(before.compareTo(after) < 0, before + " " + after);
    assertTrue(after.matches("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"), after);
  }
}

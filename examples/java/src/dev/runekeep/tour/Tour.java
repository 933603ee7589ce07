package dev.runekeep.tour;

import com.google.gson.GsonBuilder;
import com.google.protobuf.Duration;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import dev.runekeep.v1.AddMessagesRequest;
import dev.runekeep.v1.AddMessagesResponse;
import dev.runekeep.v1.AddedMessage;
import dev.runekeep.v1.CommitSessionRequest;
import dev.runekeep.v1.CommitSessionResponse;
import dev.runekeep.v1.ContextPart;
import dev.runekeep.v1.DeleteSessionRequest;
import dev.runekeep.v1.FindMemoriesRequest;
import dev.runekeep.v1.FoundItem;
import dev.runekeep.v1.GetSessionRequest;
import dev.runekeep.v1.GetSessionResponse;
import dev.runekeep.v1.ImagePart;
import dev.runekeep.v1.ListRevisionsRequest;
import dev.runekeep.v1.Message;
import dev.runekeep.v1.Part;
import dev.runekeep.v1.ReadDocumentRequest;
import dev.runekeep.v1.ReadDocumentResponse;
import dev.runekeep.v1.Revision;
import dev.runekeep.v1.Role;
import dev.runekeep.v1.ScorePart;
import dev.runekeep.v1.Task;
import dev.runekeep.v1.TaskEvent;
import dev.runekeep.v1.TaskState;
import dev.runekeep.v1.TextPart;
import dev.runekeep.v1.ToolPart;
import dev.runekeep.v1.ToolStatus;
import io.grpc.StatusRuntimeException;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;

/**
 * Runekeep from Java: a session, a commit watched to its end, what is remembered, a search, and what errors say; one JSON
 * line a step.
 *
 * <pre>make stubs-java &amp;&amp; examples/java/build.sh &amp;&amp; examples/java/tour.sh 127.0.0.1:7433</pre>
 */
public final class Tour {
  private static final String PROFILE = "viking://user/memories/profile.md";

  private final Runekeep runekeep;

  private Tour(Runekeep runekeep) {
    this.runekeep = runekeep;
  }

  private static void say(String step, Map<String, ?> details) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("step", step);
    line.putAll(details);
    System.out.println(new GsonBuilder().disableHtmlEscaping().create().toJson(line));
  }

  private static String newId() {
    return UUID.randomUUID().toString();
  }

  private static List<Message> messages() {
    Value degrees = Value.newBuilder().setNumberValue(95).build();
    ToolPart tool =
        ToolPart.newBuilder()
            .setToolId("call-1")
            .setToolName("kettle")
            .setInput(Struct.newBuilder().putFields("degrees", degrees))
            .setOutput("boiling")
            .setStatus(ToolStatus.TOOL_STATUS_COMPLETED)
            .setDuration(Duration.newBuilder().setSeconds(2))
            .build();
    TextPart text = TextPart.newBuilder().setText("I am Ida, I live in Turku, and I drink cocoa in the morning.").build();
    ImagePart image = ImagePart.newBuilder().setUrl("https://example.com/mug.jpg").setCaption("A large mug.").build();
    ContextPart shown = ContextPart.newBuilder().setUri(PROFILE).setAbstract("Who the user is.").build();
    return List.of(
        Message.newBuilder()
            .setRole(Role.ROLE_USER)
            .addParts(Part.newBuilder().setText(text))
            .addParts(Part.newBuilder().setImage(image))
            .build(),
        Message.newBuilder()
            .setRole(Role.ROLE_ASSISTANT)
            .addParts(Part.newBuilder().setContext(shown))
            .addParts(Part.newBuilder().setTool(tool))
            .build());
  }

  private void take() throws InterruptedException {
    GetSessionRequest get = GetSessionRequest.newBuilder().setSession("java-" + newId()).setAutoCreate(true).build();
    GetSessionResponse opened = runekeep.call(() -> runekeep.sessions().getSession(get));
    String session = opened.getSession().getSessionId();
    say("session", Map.of("uri", opened.getSession().getUri(), "created", opened.getCreated()));

    AddMessagesRequest add =
        AddMessagesRequest.newBuilder().setSession(session).addAllMessages(messages()).setRequestId(newId()).build();
    AddMessagesResponse added = runekeep.call(() -> runekeep.sessions().addMessages(add));
    say("added", Map.of("sequences", each(added.getMessagesList(), AddedMessage::getSequence)));
    Message empty = Message.newBuilder().setRole(Role.ROLE_USER).build();
    AddMessagesRequest wrong = AddMessagesRequest.newBuilder().setSession(session).addMessages(empty).build();
    try {
      runekeep.call(() -> runekeep.sessions().addMessages(wrong));
    } catch (StatusRuntimeException error) {
      say("refused", Map.of("error", Runekeep.Explanation.of(error)));
    }

    lookUp(commit(session));
    DeleteSessionRequest delete = DeleteSessionRequest.newBuilder().setSession(session).setRequestId(newId()).build();
    runekeep.call(() -> runekeep.sessions().deleteSession(delete));
    say("deleted", Map.of("session", session));
  }

  private long commit(String session) throws InterruptedException {
    CommitSessionRequest request =
        CommitSessionRequest.newBuilder().setSession(session).setRequestId(newId()).build();
    CommitSessionResponse made = runekeep.call(() -> runekeep.sessions().commitSession(request));
    say("committed", Map.of("task", made.getTaskId(), "archive", made.getArchiveUri()));
    Task ended = runekeep.watch(made.getTaskId(), Tour::told, last -> say("resumed", Map.of("after", last)));
    long revision = ended.getResult().getRevision();
    String outcome = ended.getResult().getOutcome().name();
    say("ended", Map.of("state", ended.getState().name(), "outcome", outcome, "revision", revision));
    if (ended.getState() != TaskState.TASK_STATE_COMPLETED) {
      throw new IllegalStateException("the commit was not completed: " + ended.getError().getMessage());
    }
    return revision;
  }

  private static void told(TaskEvent event) {
    String what = event.hasProgress() ? event.getProgress().getPhase().name() : event.getStateChange().name();
    say("event", Map.of("sequence", event.getSequence(), "what", what));
  }

  private void lookUp(long revision) throws InterruptedException {
    FindMemoriesRequest find =
        FindMemoriesRequest.newBuilder()
            .setQuery("What does she drink in the morning?")
            .setLimit(3)
            .setMinRevision(revision)
            .setExplain(true)
            .build();
    List<FoundItem> results = runekeep.call(() -> runekeep.memories().findMemories(find)).getResultsList();
    say("found", Map.of("results", each(results, Tour::explained)));

    ReadDocumentRequest read = ReadDocumentRequest.newBuilder().setUri(PROFILE).build();
    ReadDocumentResponse profile = runekeep.call(() -> runekeep.memories().readDocument(read));
    say("document", Map.of("uri", profile.getUri(), "text", profile.getText()));
    ListRevisionsRequest list = ListRevisionsRequest.getDefaultInstance();
    List<Revision> revisions = runekeep.call(() -> runekeep.history().listRevisions(list)).getRevisionsList();
    say("history", Map.of("revisions", each(revisions, Revision::getNumber)));
  }

  private static Map<String, Object> explained(FoundItem item) {
    String uri = item.hasMemory() ? item.getMemory().getUri() : item.getPassage().getUri();
    Map<String, Float> parts =
        item.getDetail().getPartsList().stream().collect(Collectors.toMap(ScorePart::getName, ScorePart::getAdded));
    return Map.of("uri", uri, "score", item.getScore(), "parts", parts);
  }

  private static <T, R> List<R> each(List<T> items, java.util.function.Function<T, R> of) {
    return items.stream().map(of).collect(Collectors.toList());
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 1) {
      System.err.println("usage: Tour HOST:PORT");
      System.exit(2);
    }
    Map<String, String> variables = new HashMap<>(System.getenv());
    variables.values().removeIf(String::isEmpty);
    if (!variables.containsKey("RUNEKEEP_API_KEY")) {
      variables.putIfAbsent("RUNEKEEP_USER", "java-tour");
    }
    try (Runekeep runekeep = new Runekeep(arguments[0], variables)) {
      new Tour(runekeep).take();
    }
  }
}

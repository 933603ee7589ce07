package example;

import dev.runekeep.client.BlockingStubs;
import dev.runekeep.client.Messages;
import dev.runekeep.client.Runekeep;
import dev.runekeep.v1.AddMessagesRequest;
import dev.runekeep.v1.CommitSessionRequest;
import dev.runekeep.v1.GetSessionRequest;
import dev.runekeep.v1.RecallRequest;
import dev.runekeep.v1.Task;
import dev.runekeep.v1.WatchTaskResponse;

/** Adds a message, follows its commit, and recalls what was said. Start `runekeep up` in another terminal first. */
public final class Remember {
  public static void main(String[] arguments) throws Exception {
    try (Runekeep runekeep = Runekeep.builder("").build()) {
      BlockingStubs calls = runekeep.blocking();
      String id = Messages.newId();
      calls.sessions().getSession(GetSessionRequest.newBuilder().setSession(id).setAutoCreate(true).build());
      AddMessagesRequest.Builder append = AddMessagesRequest.newBuilder().setSession(id);
      append.addMessages(Messages.user("I am Robin. I live in Lisbon and I prefer tea to coffee."));
      calls.sessions().addMessages(append.build());

      CommitSessionRequest commit = CommitSessionRequest.newBuilder().setSession(id).build();
      String taskId = calls.sessions().commitSession(commit).getTaskId();
      Task task = runekeep.watch(taskId, 0, Remember::show);
      System.out.println(task.getState());

      RecallRequest.Builder recall = RecallRequest.newBuilder().setQuery("What does Robin drink?");
      recall.setMinRevision(task.getResult().getRevision());
      System.out.println(calls.memories().recall(recall.build()).getText());
    }
  }

  private static void show(WatchTaskResponse update) {
    if (update.hasEvent()) {
      System.out.println("event " + update.getEvent().getSequence());
    }
  }
}

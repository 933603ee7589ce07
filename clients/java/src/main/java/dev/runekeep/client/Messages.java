package dev.runekeep.client;

import dev.runekeep.v1.Message;
import dev.runekeep.v1.Part;
import dev.runekeep.v1.Role;
import dev.runekeep.v1.TextPart;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

/** Makes messages of plain text, and ids. */
public final class Messages {
  private Messages() {}

  /** Returns a message that the user wrote. */
  public static Message user(String text) {
    return message(Role.ROLE_USER, text);
  }

  /** Returns a message that the agent wrote. */
  public static Message assistant(String text) {
    return message(Role.ROLE_ASSISTANT, text);
  }

  private static Message message(Role role, String text) {
    Part part = Part.newBuilder().setText(TextPart.newBuilder().setText(text)).build();
    return Message.newBuilder().setRole(role).addParts(part).build();
  }

  /**
   * Returns an id for a session, a message or a request: a UUID of version 7. Ids that begin with the time cost the store
   * least.
   */
  public static String newId() {
    UUID random = UUID.randomUUID();
    long time = System.currentTimeMillis() << 16 | 0x7000 | ThreadLocalRandom.current().nextInt(0x1000);
    return new UUID(time, random.getLeastSignificantBits()).toString();
  }
}

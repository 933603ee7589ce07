package dev.runekeep.client;

import dev.runekeep.v1.AdminServiceGrpc;
import dev.runekeep.v1.HistoryServiceGrpc;
import dev.runekeep.v1.MemoryServiceGrpc;
import dev.runekeep.v1.ProposalServiceGrpc;
import dev.runekeep.v1.SessionServiceGrpc;
import dev.runekeep.v1.SpaceServiceGrpc;
import dev.runekeep.v1.TaskServiceGrpc;
import dev.runekeep.v1.TurnMemoryServiceGrpc;
import io.grpc.Channel;

/** Stubs of all services whose calls return an answer. */
public final class BlockingStubs {
  private final Channel channel;

  BlockingStubs(Channel channel) {
    this.channel = channel;
  }

  /** Sessions, their messages and commits. */
  public SessionServiceGrpc.SessionServiceBlockingStub sessions() {
    return SessionServiceGrpc.newBlockingStub(channel);
  }

  /** Memories: search, recall, documents. */
  public MemoryServiceGrpc.MemoryServiceBlockingStub memories() {
    return MemoryServiceGrpc.newBlockingStub(channel);
  }

  /** Revisions, differences and rollback. */
  public HistoryServiceGrpc.HistoryServiceBlockingStub history() {
    return HistoryServiceGrpc.newBlockingStub(channel);
  }

  /** Operations that wait for review. */
  public ProposalServiceGrpc.ProposalServiceBlockingStub proposals() {
    return ProposalServiceGrpc.newBlockingStub(channel);
  }

  /** Background work. {@link Runekeep#watch} resumes a broken watch, and this stub does not. */
  public TaskServiceGrpc.TaskServiceBlockingStub tasks() {
    return TaskServiceGrpc.newBlockingStub(channel);
  }

  /** Export, import and erasure. */
  public SpaceServiceGrpc.SpaceServiceBlockingStub spaces() {
    return SpaceServiceGrpc.newBlockingStub(channel);
  }

  /** Turns of agents. */
  public TurnMemoryServiceGrpc.TurnMemoryServiceBlockingStub turns() {
    return TurnMemoryServiceGrpc.newBlockingStub(channel);
  }

  /** Calls of operators. */
  public AdminServiceGrpc.AdminServiceBlockingStub admin() {
    return AdminServiceGrpc.newBlockingStub(channel);
  }
}

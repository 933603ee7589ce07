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

/** Stubs of all services whose calls return a future of an answer. Calls with a stream are not among them: see {@link
 * Runekeep#channel}. */
public final class AsyncStubs {
  private final Channel channel;

  AsyncStubs(Channel channel) {
    this.channel = channel;
  }

  /** Sessions, their messages and commits. */
  public SessionServiceGrpc.SessionServiceFutureStub sessions() {
    return SessionServiceGrpc.newFutureStub(channel);
  }

  /** Memories: search, recall, documents. */
  public MemoryServiceGrpc.MemoryServiceFutureStub memories() {
    return MemoryServiceGrpc.newFutureStub(channel);
  }

  /** Revisions, differences and rollback. */
  public HistoryServiceGrpc.HistoryServiceFutureStub history() {
    return HistoryServiceGrpc.newFutureStub(channel);
  }

  /** Operations that wait for review. */
  public ProposalServiceGrpc.ProposalServiceFutureStub proposals() {
    return ProposalServiceGrpc.newFutureStub(channel);
  }

  /** Background work. {@link Runekeep#watchAsync} follows a task. */
  public TaskServiceGrpc.TaskServiceFutureStub tasks() {
    return TaskServiceGrpc.newFutureStub(channel);
  }

  /** Export, import and erasure. */
  public SpaceServiceGrpc.SpaceServiceFutureStub spaces() {
    return SpaceServiceGrpc.newFutureStub(channel);
  }

  /** Turns of agents. */
  public TurnMemoryServiceGrpc.TurnMemoryServiceFutureStub turns() {
    return TurnMemoryServiceGrpc.newFutureStub(channel);
  }

  /** Calls of operators. */
  public AdminServiceGrpc.AdminServiceFutureStub admin() {
    return AdminServiceGrpc.newFutureStub(channel);
  }
}

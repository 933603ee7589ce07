package runekeep

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "runekeep.dev/gen/runekeep/v1"
)

const (
	// Three missed keep-alives of the server: the stream is dead, whatever the socket says.
	silence = 45 * time.Second
	// How long the server may be away at a time.
	giveUp     = 60 * time.Second
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	closing    = time.Second
)

var errSilent = errors.New("the server stopped sending")

// Watch follows a task to its end: a snapshot, each event after `afterSequence` once and in order, and the task as it
// ended. If the stream breaks, it resumes after the last event. An error is the last thing that it yields: that of the
// server, or Unavailable if the server stays away for a minute.
//
//	for update, err := range client.Watch(ctx, task, 0) {
func (c *Client) Watch(ctx context.Context, taskID string, afterSequence int64) iter.Seq2[*pb.WatchTaskResponse, error] {
	return func(yield func(*pb.WatchTaskResponse, error) bool) {
		w := watch{client: c, task: taskID, last: afterSequence, heard: time.Now(), yield: yield}
		for {
			err := w.follow(ctx)
			if err == nil {
				return
			}
			var failed *Error
			if ctx.Err() != nil || !errors.As(err, &failed) || !isTransient(failed) {
				yield(nil, err)
				return
			}
			pause := w.nextPause(failed.RetryAfter)
			if time.Since(w.heard)+pause > giveUp {
				yield(nil, err)
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				yield(nil, asError(ctx, status.FromContextError(ctx.Err()).Err()))
				return
			}
		}
	}
}

// Wait follows a task and returns it once it has ended, with any state.
func (c *Client) Wait(ctx context.Context, taskID string) (*pb.Task, error) {
	for update, err := range c.Watch(ctx, taskID, 0) {
		if err != nil {
			return nil, err
		}
		if ended := update.GetEnded(); ended != nil {
			return ended, nil
		}
	}
	return nil, errors.New("runekeep: a watch ends with its task") // Not reached.
}

type watch struct {
	client *Client
	task   string
	last   int64
	begun  bool
	heard  time.Time
	pause  time.Duration
	yield  func(*pb.WatchTaskResponse, error) bool
}

// Yields what one stream brings. Returns nil once the task has ended or the caller wants no more.
func (w *watch) follow(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer silent.Stop()
	stream, err := w.client.Tasks.WatchTask(ctx, &pb.WatchTaskRequest{TaskId: w.task, AfterSequence: w.last})
	if err != nil {
		return err
	}
	for {
		update, err := stream.Recv()
		if err == io.EOF {
			return asError(outer, status.Error(codes.Unavailable, "the server ended the stream before the task"))
		}
		if err != nil && errors.Is(context.Cause(ctx), errSilent) {
			return asError(outer, status.Error(codes.Unavailable, errSilent.Error()))
		}
		if err != nil {
			return err
		}
		silent.Reset(silence)
		w.heard, w.pause = time.Now(), 0
		if !w.isNew(update) {
			continue
		}
		if update.GetEnded() != nil {
			// The server closes the stream next. A stream that is cancelled before would be in its log.
			silent.Reset(closing)
			stream.Recv()
			w.yield(update, nil)
			return nil
		}
		if !w.yield(update, nil) {
			return nil
		}
	}
}

func (w *watch) isNew(update *pb.WatchTaskResponse) bool {
	switch one := update.GetUpdate().(type) {
	case *pb.WatchTaskResponse_Snapshot:
		begun := w.begun
		w.begun = true
		return !begun
	case *pb.WatchTaskResponse_Event:
		if one.Event.GetSequence() <= w.last {
			return false
		}
		w.last = one.Event.GetSequence()
		return true
	case *pb.WatchTaskResponse_Ended:
		return true
	}
	return false // A keep-alive.
}

// Returns whether another stream may go on. Canceled comes from a server that is stopping.
func isTransient(failed *Error) bool {
	return failed.Code == codes.Unavailable || failed.Code == codes.Canceled
}

func (w *watch) nextPause(asked time.Duration) time.Duration {
	w.pause = min(max(w.pause*2, firstPause), maxPause)
	return max(time.Duration(float64(w.pause)*(0.5+rand.Float64()/2)), min(asked, maxPause))
}

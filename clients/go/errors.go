package runekeep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error says why a call failed, with the details that the server sent. Act on Code and Reason, show Message to people.
//
//	var failed *runekeep.Error
//	if errors.As(err, &failed) && failed.Reason == "RESOURCE_NOT_FOUND" {
type Error struct {
	// Code is the gRPC status.
	Code codes.Code
	// Reason is an ErrorReason of the contract without its prefix, for example FIELD_INVALID; empty if the server sent
	// none.
	Reason string
	// Message is for people.
	Message string
	// Violations are the invalid fields of the request.
	Violations []FieldViolation
	// RetryAfter is how long to wait before the call is repeated; 0 if the server names no time.
	RetryAfter time.Duration
	// ResourceType and Resource name what is missing or conflicts, for example `session` and its id.
	ResourceType, Resource string
	// Metadata are further details of the reason.
	Metadata map[string]string

	status      *status.Status
	byTheCaller bool
}

// FieldViolation is an invalid field of the request, by its path, and the rule that it breaks.
type FieldViolation struct{ Field, Description string }

// Error returns code, reason and message, and the fields that the message does not begin with.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString(e.Code.String())
	if e.Reason != "" {
		fmt.Fprintf(&text, " (%s)", e.Reason)
	}
	fmt.Fprintf(&text, ": %s", e.Message)
	for _, one := range e.Violations {
		if said := one.Field + ": " + one.Description; !strings.HasPrefix(e.Message, said) {
			fmt.Fprintf(&text, "\n  %s", said)
		}
	}
	return text.String()
}

// Field returns the path of the first invalid field, for example messages[0].parts; empty if the server names none.
func (e *Error) Field() string {
	if len(e.Violations) == 0 {
		return ""
	}
	return e.Violations[0].Field
}

// Retryable returns whether the same call, a mutation with the same request_id, may succeed later.
func (e *Error) Retryable() bool {
	switch e.Code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return true
	case codes.Canceled:
		return !e.byTheCaller // By a server that is stopping.
	case codes.ResourceExhausted:
		return e.RetryAfter > 0
	}
	return false
}

// GRPCStatus makes status.Code and status.Convert work with an Error.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Is makes errors.Is work with context.DeadlineExceeded and context.Canceled.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == codes.DeadlineExceeded ||
		target == context.Canceled && e.Code == codes.Canceled && e.byTheCaller
}

// Reason returns the reason of a failed call; empty for other errors.
func Reason(err error) string {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return ""
}

// Returns nil or an *Error. `ctx` is that of the call.
func asError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	sent := status.Convert(err)
	failed := &Error{
		Code: sent.Code(), Message: sent.Message(), status: sent,
		byTheCaller: errors.Is(ctx.Err(), context.Canceled),
	}
	for _, detail := range sent.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			failed.Reason, failed.Metadata = detail.GetReason(), detail.GetMetadata()
		case *errdetails.BadRequest:
			for _, one := range detail.GetFieldViolations() {
				failed.Violations = append(failed.Violations, FieldViolation{one.GetField(), one.GetDescription()})
			}
		case *errdetails.RetryInfo:
			failed.RetryAfter = detail.GetRetryDelay().AsDuration()
		case *errdetails.ResourceInfo:
			failed.ResourceType, failed.Resource = detail.GetResourceType(), detail.GetResourceName()
		}
	}
	return failed
}

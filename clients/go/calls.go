package runekeep

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "runekeep.dev/gen/runekeep/v1"
)

// What every call gets. gRPC repeats calls below the interceptors, so that a repeat has the same request id and shares
// the deadline.
type calls struct {
	timeout time.Duration
}

func (c calls) unary(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, has := ctx.Deadline(); !has {
		timeout := c.timeout
		if timeout == 0 {
			timeout = deadlineOf(method)
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
	}
	return asError(ctx, invoke(ctx, method, withRequestID(request), reply, conn, options...))
}

func (c calls) stream(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	opened, err := open(ctx, description, conn, method, options...)
	if err != nil {
		return nil, asError(ctx, err)
	}
	return stream{opened}, nil
}

type stream struct{ grpc.ClientStream }

func (s stream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == io.EOF {
		return err
	}
	return asError(s.Context(), err)
}

// Returns the deadline that the contract gives a method, 0 if none.
func deadlineOf(method string) time.Duration {
	name := protoreflect.FullName(method[1:]) // "/package.Service/Method"
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[:i] + "." + name[i+1:]
			break
		}
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return 0 // Not of the contract: a health check, say.
	}
	rules, _ := proto.GetExtension(found.Options(), pb.E_Rules).(*pb.MethodRules)
	return rules.GetDeadline().AsDuration()
}

// Returns the request with a new request_id, if it has this field and the caller left it empty. The caller's own request
// is not changed, so that it can be sent again as another one.
func withRequestID(request any) any {
	message, ok := request.(proto.Message)
	if !ok {
		return request
	}
	field := message.ProtoReflect().Descriptor().Fields().ByName("request_id")
	if field == nil || message.ProtoReflect().Has(field) {
		return request
	}
	copied := proto.Clone(message)
	copied.ProtoReflect().Set(field, protoreflect.ValueOfString(NewID()))
	return copied
}

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "runekeep.dev/gen/runekeep/v1"
)

const (
	callTime     = 10 * time.Second
	awayTime     = 60 * time.Second
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// Three keep-alives of the server that did not come.
	silence = 45 * time.Second
)

// Runekeep has the clients of the services, over one connection.
type Runekeep struct {
	Sessions pb.SessionServiceClient
	Memories pb.MemoryServiceClient
	History  pb.HistoryServiceClient
	Tasks    pb.TaskServiceClient
	conn     *grpc.ClientConn
}

// Options say who calls, and whom to trust; what is empty is not sent.
type Options struct{ Account, User, APIKey, CAFile, CertFile, KeyFile string }

// Connect uses TLS when there is a certificate to trust or the address asks for it.
func Connect(address string, options Options) (*Runekeep, error) {
	target := strings.TrimPrefix(strings.TrimPrefix(address, "https://"), "http://")
	secure := strings.HasPrefix(address, "https://") || options.CAFile != ""
	if options.APIKey != "" && !secure && !loopback(target) {
		return nil, errors.New("a key is not sent in plain text: name the server's CA file, or an https:// address")
	}
	identity := []string{}
	add := func(key, value string) {
		if value != "" {
			identity = append(identity, key, value)
		}
	}
	if options.APIKey != "" {
		add("authorization", "Bearer "+options.APIKey)
	}
	add("x-runekeep-account", options.Account)
	add("x-runekeep-user", options.User)
	dialing := []grpc.DialOption{
		grpc.WithInsecure(),
		grpc.WithChainUnaryInterceptor(identifyCall(identity), repeatCall),
		grpc.WithStreamInterceptor(identifyStream(identity)),
	}
	if secure {
		config, err := options.tls()
		if err != nil {
			return nil, err
		}
		dialing[0] = grpc.WithTransportCredentials(credentials.NewTLS(config))
	}
	conn, err := grpc.Dial(target, dialing...)
	if err != nil {
		return nil, err
	}
	return &Runekeep{
		Sessions: pb.NewSessionServiceClient(conn),
		Memories: pb.NewMemoryServiceClient(conn),
		History:  pb.NewHistoryServiceClient(conn),
		Tasks:    pb.NewTaskServiceClient(conn),
		conn:     conn,
	}, nil
}

// Close ends the connection.
func (r *Runekeep) Close() error { return r.conn.Close() }

func loopback(target string) bool {
	host, _, err := net.SplitHostPort(target)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}

func (o Options) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		trusted, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(trusted) {
			return nil, fmt.Errorf("%s has no certificate", o.CAFile)
		}
	}
	if o.CertFile != "" {
		own, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func identifyCall(identity []string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply interface{}, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		return invoke(metadata.AppendToOutgoingContext(ctx, identity...), method, request, reply, conn, options...)
	}
}

func identifyStream(identity []string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		return open(metadata.AppendToOutgoingContext(ctx, identity...), description, conn, method, options...)
	}
}

// Gives every unary call a deadline. While the server is away or asks to come later, the very same request goes again:
// every mutation carries a request_id, so it is done once.
func repeatCall(ctx context.Context, method string, request, reply interface{}, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for pause := firstPause; ; pause = longer(pause) {
		err := invoke(ctx, method, request, reply, conn, options...)
		if err == nil || !passing(err) {
			return err
		}
		wait := time.Duration(float64(pause) * (0.5 + rand.Float64()))
		if asked := Explain(err).RetryAfter; asked > wait {
			wait = asked
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

func longer(pause time.Duration) time.Duration {
	if pause *= 2; pause > longestPause {
		return longestPause
	}
	return pause
}

func passing(err error) bool {
	return status.Code(err) == codes.Unavailable || Explain(err).RetryAfter > 0
}

// Explanation is what an error's details say: the stable word that a program acts on, and the fields that broke a rule.
type Explanation struct {
	Code       string        `json:"code"`
	Reason     string        `json:"reason"`
	Fields     []string      `json:"fields,omitempty"`
	RetryAfter time.Duration `json:"-"`
}

// Explain reads the details of a failed call.
func Explain(err error) Explanation {
	known := status.Convert(err)
	explanation := Explanation{Code: known.Code().String()}
	for _, detail := range known.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			explanation.Reason = detail.GetReason()
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				explanation.Fields = append(explanation.Fields, violation.GetField())
			}
		case *errdetails.RetryInfo:
			delay := detail.GetRetryDelay()
			explanation.RetryAfter = time.Duration(delay.GetSeconds())*time.Second + time.Duration(delay.GetNanos())
		}
	}
	return explanation
}

// Watch follows a task to its end and tells every event once and in order. A stream that breaks or falls silent is taken
// up again after the last event seen; then resumed is told.
func (r *Runekeep) Watch(ctx context.Context, taskID string, event func(*pb.TaskEvent), resumed func(int64)) (*pb.Task, error) {
	var last int64
	pause, heard := firstPause, time.Now()
	for {
		ended, err := r.follow(ctx, taskID, &last, func(told *pb.TaskEvent) {
			pause, heard = firstPause, time.Now()
			event(told)
		})
		if err == nil || ctx.Err() != nil || time.Since(heard) > awayTime {
			return ended, err
		}
		if !(passing(err) || errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled) {
			return nil, err
		}
		time.Sleep(pause)
		pause = longer(pause)
		resumed(last)
	}
}

func (r *Runekeep) follow(ctx context.Context, taskID string, last *int64, event func(*pb.TaskEvent)) (*pb.Task, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := r.Tasks.WatchTask(ctx, &pb.WatchTaskRequest{TaskId: taskID, AfterSequence: *last})
	if err != nil {
		return nil, err
	}
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	var ended *pb.Task
	for {
		response, err := stream.Recv()
		if ended != nil && err != nil {
			return ended, nil
		}
		if err != nil {
			return nil, err
		}
		silent.Reset(silence)
		switch update := response.GetUpdate().(type) {
		case *pb.WatchTaskResponse_Event:
			if update.Event.GetSequence() > *last {
				*last = update.Event.GetSequence()
				event(update.Event)
			}
		case *pb.WatchTaskResponse_Ended:
			// The server closes the stream next.
			ended = update.Ended
		}
	}
}

// Tests against real servers, which `make test-go` starts: one that takes no keys, with an extractor, and one that takes
// keys over TLS.
package runekeep_test

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runekeep.dev"
	pb "runekeep.dev/gen/runekeep/v1"
)

func variable(t *testing.T, name string) string {
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run `make test-go`, which starts the servers", name)
	}
	return value
}

func open(t *testing.T, address string, options runekeep.Options) *runekeep.Client {
	client, err := runekeep.New(address, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// Returns a client of the server without keys, as a user of its own.
func user(t *testing.T, options runekeep.Options) *runekeep.Client {
	options.User = "u-" + runekeep.NewID()
	return open(t, variable(t, "RUNEKEEP_TEST_OPEN"), options)
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func failure(t *testing.T, err error) *runekeep.Error {
	t.Helper()
	var failed *runekeep.Error
	if !errors.As(err, &failed) {
		t.Fatalf("not an Error: %v", err)
	}
	return failed
}

func texts(t *testing.T, client *runekeep.Client, session *runekeep.Session) []string {
	t.Helper()
	listed := must(client.Sessions.ListMessages(t.Context(), &pb.ListMessagesRequest{Session: session.ID}))(t)
	var said []string
	for _, message := range listed.GetMessages() {
		said = append(said, message.GetParts()[0].GetText().GetText())
	}
	return said
}

func TestWhatWasSaidIsRememberedRecalledAndFound(t *testing.T) {
	client := user(t, runekeep.Options{})
	session := client.Session("")
	if task, err := session.Wait(t.Context()); task != nil || err != nil {
		t.Fatal("a task before the first commit", task, err)
	}
	said := []*pb.Message{runekeep.UserText("I live in Lisbon and I drink tea."), runekeep.AssistantText("Noted.")}
	added := must(session.AddMessages(t.Context(), said...))(t)
	if len(added) != 2 || added[1].GetSequence() != 2 {
		t.Fatal(added)
	}
	commit := must(session.Commit(t.Context(), &pb.CommitSessionRequest{KeepRecentCount: 1}))(t)
	task := must(session.Wait(t.Context()))(t)
	if task.GetTaskId() != commit.GetTaskId() || task.GetState() != pb.TaskState_TASK_STATE_COMPLETED {
		t.Fatal(task)
	}
	if live := texts(t, client, session); !slices.Equal(live, []string{"Noted."}) {
		t.Fatal(live)
	}
	revision := task.GetResult().GetRevision()
	options := &pb.RecallRequest{MinRevision: revision}
	recalled := must(client.Recall(t.Context(), "Where do I live?", options))(t)
	if !strings.Contains(recalled.GetText(), "Lisbon") || options.GetQuery() != "" {
		t.Fatal(recalled, options)
	}
	found := must(client.Find(t.Context(), "Where do I live?", &pb.FindMemoriesRequest{Limit: 1, MinRevision: revision}))(t)
	if len(found.GetResults()) != 1 {
		t.Fatal(found)
	}
}

func TestASessionIsGivenNothingTwice(t *testing.T) {
	client := user(t, runekeep.Options{})
	first := client.Session("")
	must(first.AddMessages(t.Context(), runekeep.UserText("I live in Lisbon and I drink tea.")))(t)
	must(first.Commit(t.Context(), nil))(t)
	options := &pb.RecallRequest{MinRevision: must(first.Wait(t.Context()))(t).GetResult().GetRevision()}
	second := client.Session("")
	must(second.AddMessages(t.Context(), runekeep.UserText("Hello.")))(t)
	recalled := must(second.Recall(t.Context(), "Where do I live?", options))(t)
	if !strings.Contains(recalled.GetText(), "Lisbon") {
		t.Fatal(recalled)
	}
	again := must(second.Recall(t.Context(), "Where do I live?", options))(t)
	if strings.Contains(again.GetText(), "Lisbon") || again.GetOmitted().GetGiven() == 0 {
		t.Fatal(again)
	}
}

func TestAKeySaysWhoCallsOverTLS(t *testing.T) {
	address := variable(t, "RUNEKEEP_TEST_SECURED")
	options := runekeep.Options{APIKey: variable(t, "RUNEKEEP_TEST_KEY"), CAFile: variable(t, "RUNEKEEP_TEST_CA")}
	client := open(t, address, options)
	session := client.Session("")
	must(session.AddMessages(t.Context(), runekeep.UserText("Hello.")))(t)
	info := must(client.Sessions.GetSession(t.Context(), &pb.GetSessionRequest{Session: session.ID}))(t)
	if !strings.HasPrefix(info.GetSession().GetUri(), "viking://user/"+variable(t, "RUNEKEEP_TEST_USER")+"/") {
		t.Fatal(info)
	}
	options.APIKey += "x"
	_, err := open(t, address, options).Tasks.ListTasks(t.Context(), &pb.ListTasksRequest{})
	if failed := failure(t, err); failed.Code != codes.Unauthenticated || failed.Reason != "ACCESS_DENIED" {
		t.Fatal(failed)
	}
	// The authorities of this system did not sign the server's certificate.
	_, err = open(t, "https://"+address, runekeep.Options{}).Tasks.ListTasks(t.Context(), &pb.ListTasksRequest{})
	if failed := failure(t, err); failed.Code != codes.Unavailable || !strings.Contains(failed.Message, "certificate") {
		t.Fatal(failed)
	}
}

func TestOptionsThatCannotBeMeantAreRefused(t *testing.T) {
	file := t.TempDir() + "/empty.pem"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		address, expected string
		options           runekeep.Options
	}{
		{"memory.example:7433", "plain text", runekeep.Options{APIKey: "rk_1"}},
		{"memory.example", "no address", runekeep.Options{}},
		{"http://memory.example:7433", "no address", runekeep.Options{}},
		{"127.0.0.1:7433", "no certificate in PEM", runekeep.Options{CAFile: file}},
		{"https://memory.example", "go together", runekeep.Options{CertFile: file}},
		{"127.0.0.1:7433", "needs TLS", runekeep.Options{CertFile: file, KeyFile: file}},
	} {
		if _, err := runekeep.New(one.address, one.options); err == nil || !strings.Contains(err.Error(), one.expected) {
			t.Errorf("%s: %v, expected %q", one.address, err, one.expected)
		}
	}
}

func TestTheEnvironmentSaysWhatOptionsDoNot(t *testing.T) {
	t.Setenv("RUNEKEEP_ADDRESS", variable(t, "RUNEKEEP_TEST_OPEN"))
	t.Setenv("RUNEKEEP_USER", "u-"+runekeep.NewID())
	client := open(t, "", runekeep.Options{})
	got, err := client.Sessions.GetSession(t.Context(), &pb.GetSessionRequest{Session: "s", AutoCreate: true})
	if err != nil || got.GetSession().GetUri() != "viking://user/"+os.Getenv("RUNEKEEP_USER")+"/sessions/s" {
		t.Fatal(got, err)
	}
}

func TestAnErrorHasItsReasonAndField(t *testing.T) {
	client := user(t, runekeep.Options{})
	_, err := client.Session("").AddMessages(t.Context(), &pb.Message{Role: pb.Role_ROLE_USER})
	failed := failure(t, err)
	if runekeep.Reason(err) != "FIELD_INVALID" || failed.Field() != "messages[0].parts" || failed.Retryable() {
		t.Fatal(failed)
	}
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "messages[0].parts") {
		t.Fatal(err)
	}
	_, err = client.Sessions.GetSession(t.Context(), &pb.GetSessionRequest{Session: "nobody"})
	failed = failure(t, err)
	if failed.Reason != "RESOURCE_NOT_FOUND" || failed.ResourceType != "session" || failed.Resource != "nobody" {
		t.Fatal(failed)
	}
	for _, err := range client.Watch(t.Context(), "00000000-0000-7000-8000-000000000000", 0) {
		if runekeep.Reason(err) != "RESOURCE_NOT_FOUND" {
			t.Fatal(err)
		}
	}
}

func TestEachRequestGetsAnIDOfItsOwn(t *testing.T) {
	client := user(t, runekeep.Options{})
	session := client.Session("")
	must(session.AddMessages(t.Context(), runekeep.UserText("Hello.")))(t)
	request := &pb.AddMessagesRequest{Session: session.ID, Messages: []*pb.Message{runekeep.UserText("Again.")}}
	must(client.Sessions.AddMessages(t.Context(), request))(t)
	must(client.Sessions.AddMessages(t.Context(), request))(t)
	if request.GetRequestId() != "" {
		t.Fatal("the caller's request was changed")
	}
	request.RequestId = runekeep.NewID()
	must(client.Sessions.AddMessages(t.Context(), request))(t)
	must(client.Sessions.AddMessages(t.Context(), request))(t)
	if said := texts(t, client, session); !slices.Equal(said, []string{"Hello.", "Again.", "Again.", "Again."}) {
		t.Fatal(said)
	}
}

func TestACallWhoseConnectionBreaksIsRepeatedAndDoneOnce(t *testing.T) {
	between := startProxy(t, variable(t, "RUNEKEEP_TEST_OPEN"))
	client := open(t, between.address, runekeep.Options{User: "u-" + runekeep.NewID()})
	session := client.Session("")
	must(session.AddMessages(t.Context(), runekeep.UserText("Hello.")))(t)
	// gRPC by default repeats no request of this size.
	long := strings.Repeat("word ", 40_000)
	message := runekeep.UserText("Once.")
	for _, text := range []string{long, long, "this is the one"} {
		message.Parts = append(message.Parts, runekeep.UserText(text).GetParts()...)
	}
	between.cutAfter("this is the one")
	must(session.AddMessages(t.Context(), message))(t)
	if said := texts(t, client, session); !slices.Equal(said, []string{"Hello.", "Once."}) {
		t.Fatal(said)
	}
	if between.connections() < 2 {
		t.Fatal("the connection was not broken")
	}
}

func TestCallsHaveTheDeadlineOfTheContract(t *testing.T) {
	remaining := map[string]time.Duration{}
	record := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if deadline, has := ctx.Deadline(); has {
			remaining[method[strings.LastIndex(method, "/")+1:]] = time.Until(deadline)
		}
		return invoke(ctx, method, request, reply, conn, options...)
	}
	client := user(t, runekeep.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(record)}})
	must(client.Find(t.Context(), "anything", nil))(t)
	must(client.Tasks.ListTasks(t.Context(), &pb.ListTasksRequest{}))(t)
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	must(client.Sessions.ListSessions(short, &pb.ListSessionsRequest{}))(t)
	between := func(method string, least, most time.Duration) {
		if left := remaining[method]; left <= least || left > most {
			t.Errorf("%s: %v", method, left)
		}
	}
	between("FindMemories", 5*time.Second, 10*time.Second)
	between("ListTasks", 2*time.Second, 5*time.Second)
	between("ListSessions", 0, 2*time.Second)
}

func TestACallThatTakesTooLongFails(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // Accepts connections and answers nothing.
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := open(t, silent.Addr().String(), runekeep.Options{Timeout: 300 * time.Millisecond})
	_, err = client.Find(t.Context(), "anything", nil)
	failed := failure(t, err)
	if failed.Code != codes.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) || !failed.Retryable() {
		t.Fatal(failed)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Find(cancelled, "anything", nil)
	if !errors.Is(err, context.Canceled) || failure(t, err).Retryable() {
		t.Fatal(err)
	}
}

func TestAWatchGoesOnAfterABrokenConnection(t *testing.T) {
	between := startProxy(t, variable(t, "RUNEKEEP_TEST_OPEN"))
	client := open(t, between.address, runekeep.Options{User: "u-" + runekeep.NewID()})
	session := client.Session("")
	must(session.AddMessages(t.Context(), runekeep.UserText("I live in Lisbon.")))(t)
	commit := must(session.Commit(t.Context(), nil))(t)
	var kinds []string
	var sequences []int64
	for update, err := range client.Watch(t.Context(), commit.GetTaskId(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch one := update.GetUpdate().(type) {
		case *pb.WatchTaskResponse_Snapshot:
			kinds = append(kinds, "snapshot")
		case *pb.WatchTaskResponse_Event:
			if sequences = append(sequences, one.Event.GetSequence()); len(sequences) == 1 {
				between.cut()
			}
		case *pb.WatchTaskResponse_Ended:
			kinds = append(kinds, "ended")
		}
	}
	if !slices.Equal(kinds, []string{"snapshot", "ended"}) || len(sequences) < 3 {
		t.Fatal(kinds, sequences)
	}
	for place, sequence := range sequences {
		if sequence != int64(place+1) {
			t.Fatal(sequences)
		}
	}
	if between.connections() < 2 {
		t.Fatal("the connection was not broken")
	}
	for update := range client.Watch(t.Context(), commit.GetTaskId(), sequences[0]) {
		if event := update.GetEvent(); event != nil {
			if event.GetSequence() != 2 {
				t.Fatal(event)
			}
			break
		}
	}
}

func TestAWatchEndsWithItsContext(t *testing.T) {
	client := user(t, runekeep.Options{})
	session := client.Session("")
	must(session.AddMessages(t.Context(), runekeep.UserText("I live in Lisbon.")))(t)
	commit := must(session.Commit(t.Context(), nil))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Wait(ctx, commit.GetTaskId()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestCallsAreSpreadOverTheAddressesOfAName(t *testing.T) {
	port := variable(t, "RUNEKEEP_TEST_OPEN")
	port = port[strings.LastIndex(port, ":"):]
	client := open(t, "dns:///localhost"+port, runekeep.Options{User: "u-" + runekeep.NewID()})
	must(client.Tasks.ListTasks(t.Context(), &pb.ListTasksRequest{}))(t)
}

func TestIDsAreUUIDsThatBeginWithTheTime(t *testing.T) {
	before := runekeep.NewID()
	time.Sleep(2 * time.Millisecond)
	after := runekeep.NewID()
	if before >= after || len(after) != 36 || after[14] != '7' || !strings.ContainsRune("89ab", rune(after[19])) {
		t.Fatal(before, after)
	}
}

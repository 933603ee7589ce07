// Command tour: Runekeep from Go. A session, a commit watched to its end, what is remembered, a search, and what errors
// say; one JSON line a step.
//
//	make stubs-go && examples/go/build.sh && examples/go/build/tour 127.0.0.1:7433
//
// RUNEKEEP_API_KEY, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and RUNEKEEP_KEY_FILE are used
// where set.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	pb "runekeep.dev/gen/runekeep/v1"
)

func say(step string, details map[string]interface{}) {
	line := map[string]interface{}{"step": step}
	for key, value := range details {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func newID() string {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", id)
}

func messages() ([]*pb.Message, error) {
	input, err := structpb.NewStruct(map[string]interface{}{"degrees": 95})
	if err != nil {
		return nil, err
	}
	text := &pb.TextPart{Text: "I am Gus, I live in Porto, and I drink espresso in the morning."}
	image := &pb.ImagePart{Url: "https://example.com/cup.jpg", Caption: "A small cup."}
	shown := &pb.ContextPart{Uri: "viking://user/memories/profile.md", Abstract: "Who the user is."}
	tool := &pb.ToolPart{
		ToolId: "call-1", ToolName: "kettle", Input: input, Output: "boiling",
		Status: pb.ToolStatus_TOOL_STATUS_COMPLETED, Duration: &durationpb.Duration{Seconds: 2},
	}
	return []*pb.Message{
		{Role: pb.Role_ROLE_USER, Parts: []*pb.Part{
			{Part: &pb.Part_Text{Text: text}}, {Part: &pb.Part_Image{Image: image}},
		}},
		{Role: pb.Role_ROLE_ASSISTANT, Parts: []*pb.Part{
			{Part: &pb.Part_Context{Context: shown}}, {Part: &pb.Part_Tool{Tool: tool}},
		}},
	}, nil
}

func tour(ctx context.Context, runekeep *Runekeep) error {
	opened, err := runekeep.Sessions.GetSession(ctx, &pb.GetSessionRequest{Session: "go-" + newID(), AutoCreate: true})
	if err != nil {
		return err
	}
	session := opened.GetSession().GetSessionId()
	say("session", map[string]interface{}{"uri": opened.GetSession().GetUri(), "created": opened.GetCreated()})

	said, err := messages()
	if err != nil {
		return err
	}
	add := &pb.AddMessagesRequest{Session: session, Messages: said, RequestId: newID()}
	added, err := runekeep.Sessions.AddMessages(ctx, add)
	if err != nil {
		return err
	}
	sequences := []int64{}
	for _, message := range added.GetMessages() {
		sequences = append(sequences, message.GetSequence())
	}
	say("added", map[string]interface{}{"sequences": sequences})
	wrong := &pb.AddMessagesRequest{Session: session, Messages: []*pb.Message{{Role: pb.Role_ROLE_USER}}}
	if _, err := runekeep.Sessions.AddMessages(ctx, wrong); err != nil {
		say("refused", map[string]interface{}{"error": Explain(err)})
	}

	revision, err := commit(ctx, runekeep, session)
	if err != nil {
		return err
	}
	if err := lookUp(ctx, runekeep, revision); err != nil {
		return err
	}
	_, err = runekeep.Sessions.DeleteSession(ctx, &pb.DeleteSessionRequest{Session: session, RequestId: newID()})
	if err == nil {
		say("deleted", map[string]interface{}{"session": session})
	}
	return err
}

func commit(ctx context.Context, runekeep *Runekeep, session string) (int64, error) {
	request := &pb.CommitSessionRequest{Session: session, RequestId: newID()}
	made, err := runekeep.Sessions.CommitSession(ctx, request)
	if err != nil {
		return 0, err
	}
	say("committed", map[string]interface{}{"task": made.GetTaskId(), "archive": made.GetArchiveUri()})
	event := func(told *pb.TaskEvent) {
		what := told.GetStateChange().String()
		if progress := told.GetProgress(); progress != nil {
			what = progress.GetPhase().String()
		}
		say("event", map[string]interface{}{"sequence": told.GetSequence(), "what": what})
	}
	resumed := func(last int64) { say("resumed", map[string]interface{}{"after": last}) }
	ended, err := runekeep.Watch(ctx, made.GetTaskId(), event, resumed)
	if err != nil {
		return 0, err
	}
	result := ended.GetResult()
	say("ended", map[string]interface{}{
		"state": ended.GetState().String(), "outcome": result.GetOutcome().String(), "revision": result.GetRevision(),
	})
	if ended.GetState() != pb.TaskState_TASK_STATE_COMPLETED {
		return 0, fmt.Errorf("the commit was not completed: %s", ended.GetError().GetMessage())
	}
	return result.GetRevision(), nil
}

func lookUp(ctx context.Context, runekeep *Runekeep, revision int64) error {
	found, err := runekeep.Memories.FindMemories(ctx, &pb.FindMemoriesRequest{
		Query: "What does he drink in the morning?", Limit: 3, MinRevision: revision, Explain: true,
	})
	if err != nil {
		return err
	}
	results := []map[string]interface{}{}
	for _, item := range found.GetResults() {
		uri := item.GetMemory().GetUri() + item.GetPassage().GetUri()
		parts := map[string]float32{}
		for _, part := range item.GetDetail().GetParts() {
			parts[part.GetName()] = part.GetAdded()
		}
		results = append(results, map[string]interface{}{"uri": uri, "score": item.GetScore(), "parts": parts})
	}
	say("found", map[string]interface{}{"results": results})

	profile, err := runekeep.Memories.ReadDocument(ctx, &pb.ReadDocumentRequest{Uri: "viking://user/memories/profile.md"})
	if err != nil {
		return err
	}
	say("document", map[string]interface{}{"uri": profile.GetUri(), "text": profile.GetText()})
	listed, err := runekeep.History.ListRevisions(ctx, &pb.ListRevisionsRequest{})
	if err != nil {
		return err
	}
	revisions := []int64{}
	for _, one := range listed.GetRevisions() {
		revisions = append(revisions, one.GetNumber())
	}
	say("history", map[string]interface{}{"revisions": revisions})
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: tour HOST:PORT")
		os.Exit(2)
	}
	options := Options{
		Account:  os.Getenv("RUNEKEEP_ACCOUNT"),
		User:     os.Getenv("RUNEKEEP_USER"),
		APIKey:   os.Getenv("RUNEKEEP_API_KEY"),
		CAFile:   os.Getenv("RUNEKEEP_CA_FILE"),
		CertFile: os.Getenv("RUNEKEEP_CERT_FILE"),
		KeyFile:  os.Getenv("RUNEKEEP_KEY_FILE"),
	}
	if options.User == "" && options.APIKey == "" {
		options.User = "go-tour"
	}
	runekeep, err := Connect(os.Args[1], options)
	if err == nil {
		defer runekeep.Close()
		err = tour(context.Background(), runekeep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

package runekeep

import (
	"cmp"
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	pb "runekeep.dev/gen/runekeep/v1"
)

// Session is one conversation of the user. Any number of goroutines may share it.
type Session struct {
	// ID is the session's id, or its URI.
	ID       string
	client   *Client
	mutex    sync.Mutex
	exists   bool
	lastTask string
}

// Session returns a session by id or URI; an empty id is a new one. Its first use creates it on the server if it does
// not exist.
func (c *Client) Session(id string) *Session {
	return &Session{ID: cmp.Or(id, NewID()), client: c}
}

// UserText returns a message that the user wrote.
func UserText(text string) *pb.Message { return message(pb.Role_ROLE_USER, text) }

// AssistantText returns a message that the agent wrote.
func AssistantText(text string) *pb.Message { return message(pb.Role_ROLE_ASSISTANT, text) }

func message(role pb.Role, text string) *pb.Message {
	part := &pb.Part{Part: &pb.Part_Text{Text: &pb.TextPart{Text: text}}}
	return &pb.Message{Role: role, Parts: []*pb.Part{part}}
}

// AddMessages appends messages in order, all or none, and returns their ids and positions.
func (s *Session) AddMessages(ctx context.Context, messages ...*pb.Message) ([]*pb.AddedMessage, error) {
	if err := s.ensureExists(ctx); err != nil {
		return nil, err
	}
	request := &pb.AddMessagesRequest{Session: s.ID, Messages: messages}
	added, err := s.client.Sessions.AddMessages(ctx, request)
	return added.GetMessages(), err
}

// Commit archives the live messages and queues their extraction. `options` may be nil; its Session is set here.
func (s *Session) Commit(ctx context.Context, options *pb.CommitSessionRequest) (*pb.CommitSessionResponse, error) {
	if err := s.ensureExists(ctx); err != nil {
		return nil, err
	}
	request := &pb.CommitSessionRequest{}
	proto.Merge(request, options)
	request.Session = s.ID
	committed, err := s.client.Sessions.CommitSession(ctx, request)
	if task := committed.GetTaskId(); task != "" {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.lastTask = task
	}
	return committed, err
}

// Wait waits until the last commit that was made with this Session has ended, and returns its task; nil if it made none.
func (s *Session) Wait(ctx context.Context) (*pb.Task, error) {
	s.mutex.Lock()
	task := s.lastTask
	s.mutex.Unlock()
	if task == "" {
		return nil, nil
	}
	return s.client.Wait(ctx, task)
}

// Recall is Client.Recall for this session: the server records what the session gets, and leaves it out of later recalls.
func (s *Session) Recall(ctx context.Context, query string, options *pb.RecallRequest) (*pb.RecallResponse, error) {
	request := &pb.RecallRequest{}
	proto.Merge(request, options)
	request.Session = s.ID
	return s.client.Recall(ctx, query, request)
}

// Recall returns the memories and passages most relevant to the query, as text for a prompt. `options` may be nil; its
// Query is set here.
func (c *Client) Recall(ctx context.Context, query string, options *pb.RecallRequest) (*pb.RecallResponse, error) {
	request := &pb.RecallRequest{}
	proto.Merge(request, options)
	request.Query = query
	return c.Memories.Recall(ctx, request)
}

// Find searches memories and archived conversation, best first. `options` may be nil; its Query is set here.
func (c *Client) Find(
	ctx context.Context, query string, options *pb.FindMemoriesRequest,
) (*pb.FindMemoriesResponse, error) {
	request := &pb.FindMemoriesRequest{}
	proto.Merge(request, options)
	request.Query = query
	return c.Memories.FindMemories(ctx, request)
}

func (s *Session) ensureExists(ctx context.Context) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.exists {
		return nil
	}
	_, err := s.client.Sessions.GetSession(ctx, &pb.GetSessionRequest{Session: s.ID, AutoCreate: true})
	s.exists = err == nil
	return err
}

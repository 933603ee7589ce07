// Package runekeep is the client of a Runekeep server: sessions and their messages, commits that are watched to their
// end, searches, and recalls for prompts.
//
//	client, err := runekeep.New("127.0.0.1:7433", runekeep.Options{User: "mara"})
//	session := client.Session("monday")
//	_, err = session.AddMessages(ctx, runekeep.UserText("I live in Lisbon."))
//	_, err = session.Commit(ctx, nil)
//	task, err := session.Wait(ctx)
//	recalled, err := client.Recall(ctx, "Where do I live?", nil)
//
// The stubs of the contract are fields of Client. A call through them gets what every call gets: who calls, a deadline,
// a request id, repeats, and an *Error if it fails.
package runekeep

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "runekeep.dev/gen/runekeep/v1"
)

// Options say who calls, which servers to trust, and how long calls may take. What is empty is taken from the
// environment: RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE, RUNEKEEP_KEY_FILE.
type Options struct {
	// Account and User name the caller where the server takes no keys.
	Account, User string
	// APIKey says for whom the caller acts. It is never sent in plain text to another machine.
	APIKey string
	// CAFile holds the certificates of trusted authorities, in PEM. It switches TLS on.
	CAFile string
	// CertFile and KeyFile are the client's certificate and its key, in PEM, for servers that ask for one. They are read
	// at each connection, so that they can be renewed while a client runs.
	CertFile, KeyFile string
	// Timeout is the deadline of unary calls whose context has none. Zero: that of the method by the contract.
	Timeout time.Duration
	// DialOptions are added to the options of the connection, for example for telemetry.
	DialOptions []grpc.DialOption
}

// Client calls one server as one user. Any number of goroutines may share it.
type Client struct {
	Sessions  pb.SessionServiceClient
	Memories  pb.MemoryServiceClient
	History   pb.HistoryServiceClient
	Proposals pb.ProposalServiceClient
	Tasks     pb.TaskServiceClient
	Spaces    pb.SpaceServiceClient
	Turns     pb.TurnMemoryServiceClient
	Admin     pb.AdminServiceClient
	conn      *grpc.ClientConn
}

// New returns a client of the server at `host:port`. It connects at its first call.
//
// `https://host:port`, or a CAFile, means TLS. `dns:///host:port` spreads calls over all addresses of the host. An empty
// address is RUNEKEEP_ADDRESS, or else 127.0.0.1:7433.
func New(address string, options Options) (*Client, error) {
	target, dialing, err := transport(address, options.withEnvironment())
	if err != nil {
		return nil, fmt.Errorf("runekeep: %w", err)
	}
	conn, err := grpc.NewClient(target, append(dialing, options.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("runekeep: %w", err)
	}
	return &Client{
		Sessions:  pb.NewSessionServiceClient(conn),
		Memories:  pb.NewMemoryServiceClient(conn),
		History:   pb.NewHistoryServiceClient(conn),
		Proposals: pb.NewProposalServiceClient(conn),
		Tasks:     pb.NewTaskServiceClient(conn),
		Spaces:    pb.NewSpaceServiceClient(conn),
		Turns:     pb.NewTurnMemoryServiceClient(conn),
		Admin:     pb.NewAdminServiceClient(conn),
		conn:      conn,
	}, nil
}

// Close closes the connection. Calls under way fail.
func (c *Client) Close() error { return c.conn.Close() }

// NewID returns an id for a session, a message or a request: a UUID of version 7. Ids that begin with the time cost the
// store least.
func NewID() string {
	var id [16]byte
	rand.Read(id[:]) // Never returns an error.
	random := binary.BigEndian.Uint16(id[6:])
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16|0x7000|uint64(random&0x0fff))
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

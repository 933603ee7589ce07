// Adds a message, follows its commit, and recalls what was said. Start `runekeep up` in another terminal first.
package main

import (
	"context"
	"fmt"
	"log"

	"runekeep.dev"
	pb "runekeep.dev/gen/runekeep/v1"
)

func remember(ctx context.Context, client *runekeep.Client) error {
	session := client.Session("")
	said := runekeep.UserText("I am Robin. I live in Lisbon and I prefer tea to coffee.")
	if _, err := session.AddMessages(ctx, said); err != nil {
		return err
	}
	commit, err := session.Commit(ctx, nil)
	if err != nil {
		return err
	}
	var ended *pb.Task
	for update, err := range client.Watch(ctx, commit.GetTaskId(), 0) {
		if err != nil {
			return err
		}
		if event := update.GetEvent(); event != nil {
			fmt.Println("event", event.GetSequence())
		}
		ended = update.GetEnded()
	}
	fmt.Println(ended.GetState())
	options := &pb.RecallRequest{MinRevision: ended.GetResult().GetRevision()}
	recalled, err := client.Recall(ctx, "What does Robin drink?", options)
	if err != nil {
		return err
	}
	fmt.Println(recalled.GetText())
	return nil
}

func main() {
	client, err := runekeep.New("", runekeep.Options{})
	if err == nil {
		defer client.Close()
		err = remember(context.Background(), client)
	}
	if err != nil {
		log.Fatal(err)
	}
}

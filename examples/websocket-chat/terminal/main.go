// Command terminal chats with the plugin websocket-chat over a WebSocket: each
// line of its input is a message. It shows how little a Go client needs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/carrelhost/carrel/client"
)

func main() {
	c := &client.Client{Base: os.Getenv("CARREL_HOST"), Key: os.Getenv("CARREL_KEY")}
	if err := chat(context.Background(), c, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(1)
	}
}

// chat sends each line and prints the answer as it comes. The connection is a
// session: the plugin remembers as long as it is open.
func chat(ctx context.Context, c *client.Client, in io.Reader, out io.Writer) error {
	socket, err := c.Connect(ctx, client.SocketOptions{})
	if err != nil {
		return err
	}
	defer socket.Close() //nolint:errcheck // the chat is over
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		call, err := socket.Invoke(ctx, client.Frame{
			Method: "websocket-chat/com.acme.SocketChat.chat",
			Args:   map[string]string{"msg": lines.Text()},
		})
		if err != nil {
			return err
		}
		if _, err := client.Result(call.Events(ctx), func(delta string) { fmt.Fprint(out, delta) }); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	return lines.Err()
}

package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

// answering returns the address of a host that reads requests, answers each
// with some bytes, and ends the connection.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(conn, answer)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestAConnectionThatBreaksOffIsToldFromAHostThatIsNotThere(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
	const stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"type\":\"response.created\"}\n\n"
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	a := carrel.Address{Plugin: "p", Service: "s", Method: "m"}
	for name, c := range map[string]struct {
		base string
		want bool

		streamed bool // the answer is one to a stream alone
		gone     bool // the caller has left
	}{
		"nothing listens there":                   {base: "http://" + gone.Addr().String()},
		"the request is read and not answered":    {base: answering(t, ""), want: true},
		"the answer ends in its head":             {base: answering(t, head[:30]), want: true},
		"the answer ends in its body":             {base: answering(t, head+`{"id"`), want: true},
		"what answers is no HTTP server":          {base: answering(t, "SSH-2.0-OpenSSH_9.6\r\n")},
		"the caller has gone away by itself":      {base: answering(t, ""), gone: true},
		"the stream of events ends before it may": {base: answering(t, stream), want: true, streamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if c.gone {
				leave()
			}
			cl := client.Client{Base: c.base, Key: "k", HTTP: &http.Client{Transport: &http.Transport{}}}
			if !c.streamed {
				_, err := cl.Invoke(ctx, a, "", map[string]any{}, client.CallOptions{})
				if err == nil || errors.Is(err, client.ErrBrokenOff) != c.want {
					t.Errorf("the call: %v", err)
				}
			}
			_, err := client.Result(cl.Stream(ctx, a, "", map[string]any{}, client.CallOptions{}), nil)
			if err == nil || errors.Is(err, client.ErrBrokenOff) != c.want {
				t.Errorf("the stream: %v", err)
			}
		})
	}
}

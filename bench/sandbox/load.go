package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// connections is how many clients ask at once, each again as soon as it has
// its answer.
const connections = 16

// target is something that answers HTTP requests, all alike.
type target struct {
	name, url string
	key       string // an API key, or ""
	body      string
	answer    string // what the answer must contain
}

// load has clients ask for so long and returns the answers per second. The
// clients share the cores with what they ask, so they do as little as
// possible: the request is bytes that were made before.
func (t target) load(ctx context.Context, each time.Duration) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(t.body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if t.key != "" {
		req.Header.Set("Authorization", "Bearer "+t.key)
	}
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		return 0, err
	}
	at, err := url.Parse(t.url)
	if err != nil {
		return 0, err
	}
	var answered atomic.Int64
	failed := make(chan error, connections)
	var all sync.WaitGroup
	begin := time.Now()
	for range connections {
		all.Go(func() {
			n, err := t.ask(ctx, at.Host, wire.Bytes(), begin.Add(each))
			answered.Add(n)
			if err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	select {
	case err := <-failed:
		return 0, err
	default:
		return float64(answered.Load()) / took.Seconds(), nil
	}
}

// ask sends the request over one connection until a time.
func (t target) ask(ctx context.Context, address string, wire []byte, until time.Time) (n int64, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // what was sent was answered
	if err := conn.SetDeadline(until.Add(callTimeout)); err != nil {
		return 0, err
	}
	answers := bufio.NewReader(conn)
	for ; time.Now().Before(until); n++ {
		if _, err := conn.Write(wire); err != nil {
			return n, err
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return n, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read
		if err != nil {
			return n, err
		}
		if resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(t.answer)) {
			return n, fmt.Errorf("%s: %s", resp.Status, body)
		}
	}
	return n, nil
}

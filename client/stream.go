package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/carrelhost/carrel"
)

// Stream calls a service method and yields its events as they come. To stop
// early is to go away: the invocation is cancelled, unless o.Detached. The one
// error is the last of the sequence; an invocation that fails after it began
// is no error here but events.
func (c *Client) Stream(ctx context.Context, a carrel.Address, version string, args any, o CallOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c.events(ctx, http.MethodPost, methodPath(a, version), o.headers(), args, yield)
	}
}

// Events yields the events of an invocation from the one after the given
// number, 0 = all, as they come. They are kept for a short while after the
// invocation's end.
func (c *Client) Events(ctx context.Context, invocation string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		path := invocationPath(invocation) + "/events?after=" + strconv.FormatInt(after, 10)
		c.events(ctx, http.MethodGet, path, http.Header{}, nil, yield)
	}
}

// Cancel cancels an invocation whose events can be read, and says what became
// of it.
func (c *Client) Cancel(ctx context.Context, invocation string) (Canceled, error) {
	var out Canceled
	err := c.do(ctx, http.MethodPost, invocationPath(invocation)+"/cancel", nil, nil, &out)
	return out, err
}

func invocationPath(id string) string { return "/api/v1/invocations/" + url.PathEscape(id) }

func (c *Client) events(ctx context.Context, method, path string, h http.Header, in any, yield func(Event, error) bool) {
	h.Set("Accept", "text/event-stream")
	resp, err := c.send(ctx, method, path, h, in)
	if err != nil {
		yield(Event{}, err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // whatever is left is not wanted
	if resp.StatusCode != http.StatusOK {
		yield(Event{}, failure(resp))
		return
	}
	replayed := replays(resp.Header)
	err = readEvents(resp.Body, func(e Event, err error) bool {
		if e.Response != nil {
			e.Response.Replayed = replayed
		}
		return yield(e, err)
	})
	if err != nil {
		yield(Event{}, fmt.Errorf("carrel client: read events: %w", err))
	}
}

// readEvents yields what a stream of server-sent events carries, up to its
// end mark.
func readEvents(r io.Reader, yield func(Event, error) bool) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAnswer)
	var data strings.Builder
	for lines.Scan() {
		if line, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
			data.WriteString(strings.TrimPrefix(line, " "))
			continue
		}
		if lines.Text() != "" || data.Len() == 0 {
			continue
		}
		if data.String() == "[DONE]" {
			return nil
		}
		var e Event
		if err := json.Unmarshal([]byte(data.String()), &e); err != nil {
			return err
		}
		data.Reset()
		if !yield(e, nil) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return brokenOff(err)
	}
	return ErrBrokenOff
}

// Result reads events to their end and returns the answer, or the problem that
// the invocation failed with. Text, if not nil, is given each piece of the
// text.
func Result(events iter.Seq2[Event, error], text func(delta string)) (Invocation, error) {
	var failed *Problem
	for e, err := range events {
		switch {
		case err != nil:
			return Invocation{}, err
		case e.Type == EventTextDelta && text != nil:
			text(e.Delta)
		case e.Type == EventError:
			failed = e.Error
		}
		if !e.Last() {
			continue
		}
		if failed != nil {
			return Invocation{}, failed
		}
		if e.Response == nil {
			return Invocation{}, errors.New("carrel client: the last event carries no response")
		}
		return e.Response.Invocation, nil
	}
	return Invocation{}, errors.New("carrel client: the events end early")
}

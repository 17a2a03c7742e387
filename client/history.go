package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// HistoryType is the media type of exported histories: JSON values, each on a
// line of its own.
const HistoryType = "application/x-ndjson"

// HistoryFormat is the Format of the histories that this host exports.
const HistoryFormat = "carrel.history/v1"

// HistoryHead is the first line of an exported history. A line for each
// message follows, as Message, and last a HistoryEnd.
type HistoryHead struct {
	Format   string `json:"format"`
	Plugin   string `json:"plugin"`
	MemoryID string `json:"memoryId"`
	Kind     string `json:"kind"`
	// Owner is whose history it is, where that is a part of its key. Only the
	// tenant's owner is told.
	Owner     string    `json:"owner,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	Messages  int64     `json:"messages"` // as the export began; turns may have been deleted while it ran
}

// HistoryEnd is the last line of an exported history. Without it the history
// was cut.
type HistoryEnd struct {
	End      bool  `json:"end"`      // true
	Messages int64 `json:"messages"` // lines before it, but for the first
}

// ErrCutHistory says that an exported history ends early: it was deleted while
// it was read, or the connection broke.
var ErrCutHistory = errors.New("carrel client: the exported history is cut: its last line is missing or counts other messages")

// Export reads a history as JSON lines. The caller closes what it returns,
// which yields io.EOF only after a whole history, and ErrCutHistory or the
// connection's error otherwise. It is for one goroutine.
func (c *Client) Export(ctx context.Context, key string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, memoryPath(key)+"/export", http.Header{"Accept": {HistoryType}}, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // a body that was read
		return nil, failure(resp)
	}
	return &export{body: resp.Body}, nil
}

// maxEndLine bounds the last line.
const maxEndLine = 128

// export passes on a body and keeps what it needs to judge its end.
type export struct {
	body  io.ReadCloser
	lines int64  // that are complete
	line  []byte // the beginning of the last one, complete or not
	whole bool   // the last one is complete
}

func (e *export) Read(p []byte) (int, error) {
	n, err := e.body.Read(p)
	e.see(p[:n])
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, fmt.Errorf("carrel client: read the export: %w", err)
	case !e.ended():
		return n, ErrCutHistory
	}
	return n, io.EOF
}

func (e *export) see(b []byte) {
	for len(b) > 0 {
		if e.whole {
			e.line, e.whole = e.line[:0], false
		}
		piece, rest, found := bytes.Cut(b, []byte("\n"))
		e.line = append(e.line, piece[:min(len(piece), maxEndLine+1-len(e.line))]...)
		if found {
			e.lines++
			e.whole = true
		}
		b = rest
	}
}

func (e *export) ended() bool {
	var end HistoryEnd
	return e.whole && len(e.line) <= maxEndLine && json.Unmarshal(e.line, &end) == nil &&
		end.End && end.Messages == e.lines-2
}

func (e *export) Close() error {
	if err := e.body.Close(); err != nil {
		return fmt.Errorf("carrel client: close the export: %w", err)
	}
	return nil
}

// ImportOptions are the choices of an import.
type ImportOptions struct {
	Plugin   string // "" = the one that the history was exported from
	MemoryID string // "" = the one that it had; given, the history is a copy under it
	Size     int64  // bytes that the history has, if known: a host refuses early what is too large
}

// Import makes a history of what Export read, whole or not at all. The caller
// still owns history.
func (c *Client) Import(ctx context.Context, history io.Reader, o ImportOptions) (Memory, error) {
	q := url.Values{}
	if o.Plugin != "" {
		q.Set("plugin", o.Plugin)
	}
	if o.MemoryID != "" {
		q.Set("memoryId", o.MemoryID)
	}
	var out Memory
	err := c.do(ctx, http.MethodPost, withQuery("/api/v1/memories/import", q),
		http.Header{"Content-Type": {HistoryType}}, streamed{history, o.Size}, &out)
	return out, err
}

// streamed is a body that is sent as it is read.
type streamed struct {
	io.Reader       // the caller closes it
	size      int64 // 0 = not known
}

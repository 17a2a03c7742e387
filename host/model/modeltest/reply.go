package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// maxBodyBytes bounds a request: more than any test sends.
const maxBodyBytes = 64 << 20

// answer is what one call gets: a text in pieces, or whatever custom does.
type answer struct {
	pieces []string
	custom http.Handler
}

// complete answers POST /v1/chat/completions.
func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	// The body is read to its end first: until then a client that goes away is
	// not seen.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		refuse(w, err)
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		refuse(w, fmt.Errorf("Content-Type is %q", kind))
		return
	}
	c, err := decode(body)
	if err != nil {
		refuse(w, err)
		return
	}
	c.Header, c.Remote = r.Header.Clone(), r.RemoteAddr
	made, h, a, ok := s.begin(c)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	how := answered
	defer func() { s.finish(made, how) }() // also when custom cuts the connection by a panic
	if !a.serve(w, r, made.Call, h) {
		how = gone
		// To return would end the answer in good order, and a client that is
		// still there, because it is the server that ends, would take it.
		panic(http.ErrAbortHandler)
	}
}

// serve sends the answer. It is false if the client went away before the last
// of it was sent.
func (a answer) serve(w http.ResponseWriter, r *http.Request, c Call, h *hold) bool {
	ctx := r.Context()
	holdAt := -1
	if h != nil {
		holdAt = h.pieces
	}
	if h != nil && (a.custom != nil || !c.Stream) && !h.wait(ctx) {
		return false
	}
	switch {
	case a.custom != nil:
		a.custom.ServeHTTP(w, r)
		return ctx.Err() == nil
	case !c.Stream:
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", c.N), "object": "chat.completion", "created": c.N, "model": c.Model,
			"choices": []any{map[string]any{
				"index":         0,
				"message":       map[string]any{"role": "assistant", "content": strings.Join(a.pieces, "")},
				"finish_reason": "stop",
			}},
			"usage": a.usage(c),
		})
	}
	for i, chunk := range a.chunks(c) {
		// Chunk 0 only opens the answer, chunk i carries piece i-1.
		if i == 0 && holdAt == 0 || holdAt > 0 && i == min(holdAt, len(a.pieces))+1 {
			if !h.wait(ctx) {
				return false
			}
		}
		if i == 0 {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		data, err := json.Marshal(chunk)
		if err != nil || ctx.Err() != nil || !writeEvent(w, data) {
			return false
		}
	}
	return writeEvent(w, []byte("[DONE]"))
}

// chunks returns the events of a streamed answer but for the last, [DONE].
func (a answer) chunks(c Call) []any {
	chunk := func(choices []any, usage any) map[string]any {
		out := map[string]any{
			"id": fmt.Sprintf("chatcmpl-%d", c.N), "object": "chat.completion.chunk", "created": c.N, "model": c.Model,
			"choices": choices,
		}
		if c.includeUsage {
			out["usage"] = usage
		}
		return out
	}
	delta := func(d map[string]any, finish any) any {
		return chunk([]any{map[string]any{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	out := []any{delta(map[string]any{"role": "assistant", "content": ""}, nil)}
	for _, piece := range a.pieces {
		out = append(out, delta(map[string]any{"content": piece}, nil))
	}
	out = append(out, delta(map[string]any{}, "stop"))
	if c.includeUsage {
		out = append(out, chunk([]any{}, a.usage(c)))
	}
	return out
}

// usage counts words: of all contents sent, and of the answer.
func (a answer) usage(c Call) map[string]any {
	in, out := 0, len(strings.Fields(strings.Join(a.pieces, "")))
	for _, m := range c.Messages {
		in += len(strings.Fields(m.Content))
	}
	return map[string]any{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
}

func writeJSON(w io.Writer, v any) bool {
	return json.NewEncoder(w).Encode(v) == nil
}

func writeEvent(w http.ResponseWriter, data []byte) bool {
	if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": err.Error(), "type": "invalid_request_error", "param": nil, "code": nil,
	}})
}

// words cuts a text before each space, so that the pieces joined are the text.
func words(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexByte(text[1:], ' ') + 1
		if n == 0 {
			n = len(text)
		}
		out = append(out, text[:n])
		text = text[n:]
	}
	return out
}
